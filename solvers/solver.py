"""What every solver is: a frozen object of hyperparameters that knows what it supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from otlp.certificate import Answer, certify
from otlp.errors import Capability, UnsupportedProblemError
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.timing import Stopwatch

__all__ = ["Solver"]


class Solver(ABC):
    """Base class of all solvers; subclasses are frozen dataclasses of hyperparameters."""

    name: ClassVar[str]

    @abstractmethod
    def supports(self, problem: Problem) -> Capability:
        """Whether this solver takes the problem, or the reason why not; lists no tuples."""

    def work(self, problem: Problem) -> float:
        """Size that the solver's time grows with, for predictions; 0 where it is not known.

        The unit is the solver's own; lists no tuples.
        """
        return 0.0

    @abstractmethod
    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Find a plan, charging time to the clock; without checks before or after.

        Users call `solve`, which checks both.
        """

    def require(self, problem: Problem) -> None:
        """Refuse a problem that `supports` says no to.

        Raises
        ------
        UnsupportedProblemError
            With the reason.
        """
        capability = self.supports(problem)
        if not capability:
            raise UnsupportedProblemError(f"{self.name}: {capability.reason}")

    def solve(self, problem: Problem) -> Solution:
        """Solve the problem and certify the answer.

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        """
        self.require(problem)
        clock = Stopwatch()
        return certify(problem, self.name, self.answer(problem, clock), clock)
