"""The optimum for independent drafts, by a choice in proportion to random weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from otlp.capability import Capability, supported_if
from otlp.certificate import Answer
from otlp.numerics.random_weights import ROUNDING, TokenWeights, random_weights
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual, Support
from otlp.solution import Status
from otlp.solvers.gap_solver import GapSolver, claim
from otlp.solvers.orderings import better_of_orderings
from otlp.solvers.weight_plan import WeightPlan
from otlp.timing import Stopwatch, seconds_left


@dataclass(frozen=True)
class RandomWeights(GapSolver):
    """Adjust the weights of the tokens until the selection is optimal.

    Parameters
    ----------
    gap : float
        Optimality gap at which to stop.
    max_iterations : int
        Maximum number of iterations, and orderings after a stall; each half of the ladder has at
        least one iteration.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    Each drafted token draws one of two neighbouring weights, and one draft is selected in
    proportion to the weights, first among the drafts outside H*; see
    `otlp.numerics.random_weights`.  O(nV) per iteration; O(V) memory for the plan.
    Ten iterations usually suffice.  This convergence is measured, not proved.  The iteration stalls
    if many nested sets T have p(T) = prod_j q_j(T) or nearly so, for example if p is the
    distribution of the first drafted token in some order.  Then the solver also tries `Orderings`
    and returns the better plan.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Independent([[0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]])
    >>> solution = otlp.solve(otlp.Problem([0.14, 0.68, 0.02, 0.16], drafts), "random-weights")
    >>> round(solution.acceptance, 4), solution.subset.nonzero()[0].tolist()
    (0.9448, [2, 3])
    """

    name: ClassVar[str] = "random-weights"

    def supports(self, problem: Problem) -> Capability:
        """Support independent drafts, which may have the same distribution."""
        check_problem(problem)
        return supported_if(
            problem.drafts._independent is not None,
            f"the drafts must be independent, got {problem.drafts}; use orderings",
        )

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Adjust the weights of the tokens that can be drafted."""
        small, inverse = Support().reduce(problem)
        drafts = small.drafts._independent
        assert drafts is not None
        clock.charge("reduce")
        found = random_weights(small.target, drafts, self.gap, self.max_iterations)
        clock.charge("solve")
        answer = self._answer(small, found)
        left = self.max_iterations - found.iterations
        if left > 0 and seconds_left() > 0.0 and found.gap > max(self.gap, ROUNDING):
            answer = better_of_orderings(answer, small, self.gap, left, clock)
        lifted, subset = Support().lift(PrimalDual(answer.plan, answer.subset), inverse)
        clock.charge("recover")
        return replace(answer, plan=lifted, subset=subset)

    def _answer(self, problem: Problem, found: TokenWeights) -> Answer:
        solved, late = found.gap <= self.gap, seconds_left() <= 0.0
        return Answer(
            WeightPlan(problem, found.selection_distribution, found.positions),
            claim(found.gap),
            found.subset,
            Status.SOLVED if solved else Status.TIME_LIMIT if late else Status.ITERATION_LIMIT,
            "" if solved else f"stopped at a gap of {found.gap:.3g}; the plan is lossless",
            {"iterations": found.iterations},
        )
