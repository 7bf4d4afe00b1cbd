"""A solver behind a chain of reductions: applies it, keeps the time limit, lifts the answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from otlp.certificate import Answer
from otlp.checks import check_memory_limit, check_time_limit
from otlp.problem import Problem
from otlp.reductions import Chain, PrimalDual
from otlp.solution import Guarantee
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch, deadline


class ChainSolver(Solver):
    """Base class of the solvers that reduce a problem, run an engine, and go the same way back.

    A subclass has the fields ``memory_limit`` and ``time_limit``, and says its chain and what it
    does with what comes out of that.  It promises nothing of its plans: engines keep constraints
    within tolerances of their own, and the verifier says whether a plan is lossless.
    """

    memory_limit: int
    time_limit: float | None

    def __post_init__(self) -> None:
        check_memory_limit(self.memory_limit)
        check_time_limit(self.time_limit)

    @property
    @abstractmethod
    def reduction(self) -> Chain:
        """From a `Problem` to what the engine is given, and back."""

    @abstractmethod
    def run(
        self, reduced: Any, clock: Stopwatch
    ) -> tuple[PrimalDual[Any, Any], Mapping[str, object]]:
        """Solve what the chain gives: the answer to it, and details for the `Solution`.

        The time since the chain, or the clock's last charge, goes to "solve".

        Raises
        ------
        Stopped
            With `Status.TIME_LIMIT`, or `Status.NUMERICAL_ERROR` where the engine failed.
        """

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Reduce, run the engine within the time limit, and go back."""
        chain = self.reduction
        with deadline(self.time_limit):
            reduced, inverse = chain.reduce(problem, clock.charge)
            found, details = self.run(reduced, clock)
        clock.charge("solve")
        found = chain.lift(found, inverse)
        clock.charge("recover")
        return Answer(found.primal, Guarantee.OPTIMAL, found.dual, details=details)
