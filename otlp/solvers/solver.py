"""What every solver is: a frozen object of hyperparameters that knows what it supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, ParamSpec, TypeVar

from otlp.certificate import Answer, certify
from otlp.checks import own_float_errors
from otlp.errors import Capability, InvalidInputError
from otlp.plan import Plan
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee, Solution, SolveError, Status
from otlp.timing import Stopwatch, checkpoint

P = ParamSpec("P")
Result = TypeVar("Result")


class Stopped(Exception):  # noqa: N818, since a limit is no error
    """Work stopped before there was a plan; raised where it stops, and caught by `answered`.

    Attributes
    ----------
    status : Status
        Why.
    message : str
        Which limit, by how much, or an engine's own words.
    """

    def __init__(self, status: Status, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


def answered(find: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
    """What `find` answers; where it stopped before there was a plan, an answer that says why."""
    try:
        return find(*args, **kwargs)
    except Stopped as stopped:
        status, message = stopped.status, stopped.message
    except TimeoutError as late:
        status, message = Status.TIME_LIMIT, str(late)
    return Answer(None, Guarantee.NONE, None, status, message)


def run_engine(engine: str, run: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """What an engine answers; its time limit, or a failure in its own words, as `Stopped`."""
    try:
        checkpoint()
        return run(*args, **kwargs)
    except TimeoutError as error:
        raise Stopped(Status.TIME_LIMIT, f"{engine}: {error}") from error
    except (RuntimeError, OSError) as error:
        raise Stopped(Status.NUMERICAL_ERROR, f"{engine}: {error}") from error


class Solver(ABC):
    """Base class of all solvers; subclasses are frozen dataclasses of hyperparameters.

    A solver of your own needs a `name`, `answer`, and `supports` if it does not take every
    problem.

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
    """Whether most of its time goes, for large V, into compiled code: sweeps run it in threads."""

    @property
    def promise(self) -> Guarantee:
        """What every plan of this solver is by construction, so that `prepare` may trust it.

        By default nothing: then `prepare` asks the verifier.
        """
        return Guarantee.NONE

    def supports(self, problem: Problem) -> Capability:
        """Whether this solver takes the problem, or the reason why not; lists no tuples."""
        check_problem(problem)
        return Capability(True)

    def work(self, problem: Problem) -> float:
        """Size that the solver's time grows with, for predictions; 0 where it is not known.

        The unit is the solver's own; lists no tuples.
        """
        check_problem(problem)
        return 0.0

    def resolve(self, problem: Problem) -> Solver:
        """The solver that answers: this one, unless it chooses another, as `Auto` does.

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        InvalidInputError
            If it is no problem.
        """
        check_problem(problem)
        self.supports(problem).require(self.name)
        return self

    @abstractmethod
    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Find a plan, without checks before or after; users call `solve`, which checks both.

        Parameters
        ----------
        problem : Problem
        clock : Stopwatch
            Charges the time since the last charge to a part of `otlp.timing.Timings`, as in
            ``clock.charge("build")``; the rest goes to "solve".

        Raises
        ------
        Stopped
            Where work stops before there is a plan.
        TimeoutError
            Where that is by `otlp.timing.deadline`.
        """

    @own_float_errors
    def solve(self, problem: Problem) -> Solution:
        """Solve the problem and certify the answer.

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        InvalidInputError
            If it is no problem, or `answer` returns something else than an `Answer`.
        """
        clock = Stopwatch()  # what is asked beforehand is part of the first interval
        solver = self.resolve(problem)
        answer = answered(solver.answer, problem, clock)
        clock.charge("solve")
        if not isinstance(answer, Answer):
            raise InvalidInputError(
                f"{solver.name}: answer returned a {type(answer).__name__}: it must be an "
                "otlp.Answer, such as otlp.Answer(plan)"
            )
        return certify(problem, solver.name, answer, clock)

    @own_float_errors
    def prepare(self, problem: Problem, guarantee: Guarantee = Guarantee.LOSSLESS) -> Plan:
        """Find a plan for the next tuples, without its certificate where none is needed.

        What the solver promises is not proved again: a rule that is lossless by construction
        gives a verified token in O(V), `solve` its certificate on demand.

        Parameters
        ----------
        problem : Problem
        guarantee : Guarantee
            What the plan must be, by the solver's `promise` or else by the verifier.

        Returns
        -------
        Plan

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        SolveError
            If no plan is found, or none that holds the guarantee.
        InvalidInputError
            If it is no problem, or no guarantee.
        """
        if not isinstance(guarantee, Guarantee):
            raise InvalidInputError(f"guarantee is {guarantee!r:.60}: give an otlp.Guarantee")
        solver = self.resolve(problem)
        if solver.promise >= guarantee:
            return solver.write(problem)
        solution = solver.solve(problem)
        if solution.plan is None or solution.guarantee < guarantee:
            if solution.plan is not None:
                short = f"the plan is {solution.guarantee.name}, and must be {guarantee.name}"
                solution = replace(solution, message=f"{short}. {solution.message}".rstrip())
            raise SolveError(solution)
        return solution.plan

    def write(self, problem: Problem) -> Plan:
        """Write the plan down, neither checked before nor certified after; see `prepare`.

        Raises
        ------
        SolveError
            If there is none.
        """
        clock = Stopwatch()
        answer = answered(self.answer, problem, clock)
        if answer.plan is None:
            raise SolveError(certify(problem, self.name, answer, clock))
        return answer.plan


class ClosedForm(Solver):
    """Base class of the rules that write their plan down in O(V), lossless by construction."""

    releases_gil: ClassVar[bool] = True
    promise: ClassVar[Guarantee] = Guarantee.LOSSLESS
    """What the drafts do not give of the target is drawn from what is left of it."""

    def work(self, problem: Problem) -> float:
        """Vocabulary size."""
        check_problem(problem)
        return float(problem.vocab_size)
