"""The choice of a solver: the fastest exact one for the draft scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.capability import Capability
from otlp.drafts import IID
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch
from otlp.verify import Answer

__all__ = ["Auto"]


@dataclass(frozen=True)
class Auto(Solver):
    """Solve with `martingale` for i.i.d. drafts, and with `max-flow` for a list of tuples."""

    name: ClassVar[str] = "auto"

    def select(self, problem: Problem) -> Solver:
        """Return the solver that `solve` would use."""
        return Martingale() if isinstance(problem.drafts, IID) else MaxFlow()

    def supports(self, problem: Problem) -> Capability:
        """Whether the selected solver takes the problem."""
        return self.select(problem).supports(problem)

    def solve(self, problem: Problem) -> Solution:
        """Solve with the selected solver, whose name the solution carries."""
        return self.select(problem).solve(problem)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Answer of the selected solver."""
        return self.select(problem).answer(problem, clock)
