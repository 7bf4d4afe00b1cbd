"""The optimal plan of any draft scheme, as a random mixture of priority orderings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.certificate import GAP_TOLERANCE, Answer
from otlp.errors import Capability
from otlp.numerics.minimum_norm import minimum_norm
from otlp.plan import OrderingsPlan
from otlp.problem import Problem
from otlp.reductions import PrimalDual, Support
from otlp.solution import Guarantee, Status
from otlp.solvers.limits import check_count, check_number, check_time_limit
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

__all__ = ["Orderings"]

STATUS = {
    "gap": Status.SOLVED,
    "iterations": Status.ITERATION_LIMIT,
    "time": Status.TIME_LIMIT,
    "rounding": Status.ITERATION_LIMIT,
}


@dataclass(frozen=True)
class Orderings(Solver):
    """Walk to the best mixture of priority orderings by Wolfe's minimum-norm point.

    Lossless at every step; the bound that proves the gap comes with each step for nothing.

    Parameters
    ----------
    gap : float
        Stop when the acceptance is certified within this of the optimum.
    max_iterations : int
        Orderings to visit at most.
    time_limit : float, optional
        Seconds to spend at most.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    See `otlp.numerics.minimum_norm`: a sort and a pass of the scheme over all tokens for each
    ordering, O(RV) memory for R orderings.  R grows with the number of tokens that matter and
    with the accuracy; it is largest where the optimum is nearly 1.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Independent([[0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]])
    >>> solution = otlp.solve(otlp.Problem([0.14, 0.68, 0.02, 0.16], drafts), "orderings")
    >>> round(solution.acceptance, 4), solution.subset.nonzero()[0].tolist()
    (0.9448, [2, 3])
    """

    name: ClassVar[str] = "orderings"

    gap: float = GAP_TOLERANCE
    max_iterations: int = 1000
    time_limit: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        check_number("gap", self.gap, lambda gap: gap >= 0.0, "be a number of at least 0")
        check_count("max_iterations", self.max_iterations, 1)
        check_time_limit(self.time_limit)

    def supports(self, problem: Problem) -> Capability:
        """Support every draft scheme."""
        return Capability(True)

    def work(self, problem: Problem) -> float:
        """Tokens that can be drafted, times drafts."""
        return float(problem.drafts.support.sum()) * problem.n

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Find the mixture on the tokens that can be drafted."""
        small, inverse = Support().apply(problem)
        clock.lap("reduce")
        found = minimum_norm(small, self.gap, self.max_iterations, self.time_limit)
        clock.lap("solve")
        plan = OrderingsPlan(small, found.weights, found.orders, found.selection_law)
        lifted, subset = Support().invert(PrimalDual(plan, found.subset), inverse)
        clock.lap("recover")
        message = ""
        if found.stopped != "gap":
            message = (
                f"stopped at a gap of {found.gap:.3g} after {found.iterations} orderings, short "
                f"of gap = {self.gap:.3g} ({found.stopped}); the plan is lossless"
            )
        return Answer(
            lifted,
            # A little below, since the verifier sums in another order.
            Guarantee.OPTIMAL if found.gap <= GAP_TOLERANCE - 1e-12 else Guarantee.LOSSLESS,
            subset,
            STATUS[found.stopped],
            message,
            {"orderings": found.weights.size, "iterations": found.iterations},
        )
