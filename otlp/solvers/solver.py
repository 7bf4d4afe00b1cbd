"""Base classes of solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, ParamSpec, TypeVar

from otlp.capability import Capability
from otlp.certificate import Answer, certify
from otlp.checks import own_float_errors
from otlp.errors import InvalidInputError
from otlp.plan import Plan
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee, Solution, SolveError, Status
from otlp.timing import Stopwatch, checkpoint

P = ParamSpec("P")
Result = TypeVar("Result")


class Stopped(Exception):  # noqa: N818, since reaching a limit is not an error
    """A solver stopped before it had a plan; caught by `catch_stopped`.

    Attributes
    ----------
    status : Status
        Reason.
    message : str
        Limit and by how much it was exceeded, or the engine's error message.
    """

    def __init__(self, status: Status, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


def catch_stopped(find: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
    """Return the answer of `find`, or an answer without a plan if `find` stopped early."""
    try:
        return find(*args, **kwargs)
    except Stopped as stopped:
        status, message = stopped.status, stopped.message
    except TimeoutError as late:
        status, message = Status.TIME_LIMIT, str(late)
    return Answer(None, Guarantee.NONE, None, status, message)


def run_engine(engine: str, run: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Run an engine; raise `Stopped` at the time limit or if the engine fails."""
    try:
        checkpoint()
        return run(*args, **kwargs)
    except TimeoutError as error:
        raise Stopped(Status.TIME_LIMIT, f"{engine}: {error}") from error
    except (RuntimeError, OSError) as error:
        raise Stopped(Status.NUMERICAL_ERROR, f"{engine}: {error}") from error


class Solver(ABC):
    """Base class of all solvers; subclasses are frozen dataclasses whose fields are the options.

    A custom solver needs a `name`, `answer`, and `supports` if it does not support every problem.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solver = otlp.solvers.KSeq()
    >>> isinstance(solver, otlp.Solver), solver.name, bool(solver.supports(problem))
    (True, 'k-seq', True)
    >>> round(solver.solve(problem).acceptance, 6)             # with a certificate
    0.815037
    >>> solver.prepare(problem).conditional([0, 1]).shape      # a plan, without one
    (3,)
    """

    name: ClassVar[str]
    releases_gil: ClassVar[bool] = False
    """Whether most of the time for large V is spent in compiled code, so sweeps can use threads."""

    @property
    def promise(self) -> Guarantee:
        """Guarantee that every plan of this solver has by construction; `prepare` relies on it.

        The default is `Guarantee.NONE`; then `prepare` runs the verifier.
        """
        return Guarantee.NONE

    def supports(self, problem: Problem) -> Capability:
        """Return whether this solver supports the problem, or why not; does not list tuples."""
        check_problem(problem)
        return Capability(True)

    def work(self, problem: Problem) -> float:
        """Return a size that the solver's time grows with, for predictions; 0 if unknown.

        The unit depends on the solver.  Does not list tuples.
        """
        check_problem(problem)
        return 0.0

    def resolve(self, problem: Problem) -> Solver:
        """Return the solver to use: this solver, unless it selects another one, as `Auto` does.

        Raises
        ------
        UnsupportedProblemError
            If the problem is not supported.
        InvalidInputError
            If `problem` is not a `Problem`.
        """
        check_problem(problem)
        self.supports(problem).require(self.name)
        return self

    @abstractmethod
    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Compute a plan without checks and certificate; users call `solve`, which adds both.

        Parameters
        ----------
        problem : Problem
        clock : Stopwatch
            ``clock.charge("build")`` assigns the time since the last charge to a part of
            `otlp.timing.Timings`; the remaining time is assigned to "solve".

        Raises
        ------
        Stopped
            If the solver stops before it has a plan.
        TimeoutError
            If it stops because of `otlp.timing.deadline`.
        """

    @own_float_errors
    def solve(self, problem: Problem) -> Solution:
        """Solve the problem and certify the solution.

        Raises
        ------
        UnsupportedProblemError
            If the problem is not supported.
        InvalidInputError
            If `problem` is not a `Problem`, or `answer` does not return an `Answer`.
        """
        clock = Stopwatch()  # The first interval includes `resolve`.
        solver = self.resolve(problem)
        answer = catch_stopped(solver.answer, problem, clock)
        clock.charge("solve")
        if not isinstance(answer, Answer):
            raise InvalidInputError(
                f"{solver.name}: answer must return an otlp.Answer, such as otlp.Answer(plan); got "
                f"{type(answer).__name__}"
            )
        return certify(problem, solver.name, answer, clock)

    @own_float_errors
    def prepare(self, problem: Problem, guarantee: Guarantee = Guarantee.LOSSLESS) -> Plan:
        """Compute a plan, with a certificate only if the solver's `promise` is too weak.

        A rule that is lossless by construction thus returns a verified token in O(V); use `solve`
        for a certificate.

        Parameters
        ----------
        problem : Problem
        guarantee : Guarantee
            Minimum guarantee of the plan, from the solver's `promise` or from the verifier.

        Returns
        -------
        Plan

        Raises
        ------
        UnsupportedProblemError
            If the problem is not supported.
        SolveError
            If there is no plan, or the plan does not have the guarantee.
        InvalidInputError
            If `problem` is not a `Problem`, or `guarantee` is not a `Guarantee`.
        """
        if not isinstance(guarantee, Guarantee):
            raise InvalidInputError(f"guarantee must be an otlp.Guarantee, got {guarantee!r:.60}")
        solver = self.resolve(problem)
        if solver.promise >= guarantee:
            return solver.write(problem)
        solution = solver.solve(problem)
        if solution.plan is None or solution.guarantee < guarantee:
            if solution.plan is not None:
                reason = f"the plan must be {guarantee.name}, got {solution.guarantee.name}"
                solution = replace(solution, message=f"{reason}. {solution.message}".rstrip())
            raise SolveError(solution)
        return solution.plan

    def write(self, problem: Problem) -> Plan:
        """Compute a plan without checks and certificate; see `prepare`.

        Raises
        ------
        SolveError
            If there is no plan.
        """
        clock = Stopwatch()
        answer = catch_stopped(self.answer, problem, clock)
        if answer.plan is None:
            raise SolveError(certify(problem, self.name, answer, clock))
        return answer.plan


class ClosedForm(Solver):
    """Base class of rules with an O(V) closed form that is lossless by construction."""

    releases_gil: ClassVar[bool] = True
    promise: ClassVar[Guarantee] = Guarantee.LOSSLESS
    """A rejected draft is replaced by a sample from the residual of the target."""

    def work(self, problem: Problem) -> float:
        """Return the vocabulary size."""
        check_problem(problem)
        return float(problem.vocab_size)
