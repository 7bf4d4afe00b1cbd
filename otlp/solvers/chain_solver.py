"""Base class of solvers that run an engine after a chain of reductions."""

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
    """Base class of solvers that reduce a problem, run an engine, and lift the engine's answer.

    A subclass has the fields ``memory_limit`` and ``time_limit`` and defines `reduction` and `run`.
    Its `promise` is `Guarantee.NONE`, because engines satisfy constraints only within their own
    tolerances; the verifier decides whether a plan is lossless.
    """

    memory_limit: int
    time_limit: float | None

    def __post_init__(self) -> None:
        check_memory_limit(self.memory_limit)
        check_time_limit(self.time_limit)

    @property
    @abstractmethod
    def reduction(self) -> Chain:
        """Chain of reductions from a `Problem` to the input of the engine."""

    @abstractmethod
    def run(
        self, reduced: Any, clock: Stopwatch
    ) -> tuple[PrimalDual[Any, Any], Mapping[str, object]]:
        """Solve the reduced problem; return its answer and details for the `Solution`.

        The time since the reductions, or since the clock's last charge, is assigned to "solve".

        Raises
        ------
        Stopped
            With `Status.TIME_LIMIT`, or `Status.NUMERICAL_ERROR` if the engine failed.
        """

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Reduce the problem, run the engine within the time limit, and lift its answer."""
        chain = self.reduction
        with deadline(self.time_limit):
            reduced, inverse = chain.reduce(problem, clock.charge)
            found, details = self.run(reduced, clock)
        clock.charge("solve")
        found = chain.lift(found, inverse)
        clock.charge("recover")
        return Answer(found.primal, Guarantee.OPTIMAL, found.dual, details=details)
