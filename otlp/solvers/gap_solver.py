"""Base class of solvers that improve a lossless plan until its optimality gap is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.certificate import GAP_TOLERANCE
from otlp.checks import check_number, whole_number
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import Solver

PROVABLE = GAP_TOLERANCE - 1e-12
"""Gap for a proof of optimality; the margin covers the verifier's different order of summation."""


@dataclass(frozen=True)
class GapSolver(Solver):
    """Base class of solvers that improve a lossless plan until its optimality gap is small.

    Parameters
    ----------
    gap : float
        Optimality gap at which to stop.
    max_iterations : int
        Maximum number of iterations.

    Raises
    ------
    InvalidInputError
        If an option is out of range.
    """

    releases_gil: ClassVar[bool] = True
    promise: ClassVar[Guarantee] = Guarantee.LOSSLESS
    """Lossless after every iteration, because y is computed from the numbers of the plan itself."""

    gap: float = PROVABLE
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        """Check the options."""
        check_number("gap", self.gap, lambda gap: gap >= 0.0, "be a number >= 0")
        whole_number(self.max_iterations, "max_iterations", 1)

    def work(self, problem: Problem) -> float:
        """Return the number of tokens that can be drafted times the number of drafts."""
        check_problem(problem)
        return float(problem.drafts.support.sum()) * problem.n


def claim(gap: float) -> Guarantee:
    """Return the guarantee of a lossless plan with this optimality gap."""
    return Guarantee.OPTIMAL if gap <= PROVABLE else Guarantee.LOSSLESS
