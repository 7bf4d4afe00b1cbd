"""SpecHub's verification rule, which is optimal for its pairs of drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.capability import Capability, supported_if
from otlp.certificate import Answer
from otlp.checks import own_float_errors
from otlp.distribution import FloatArray
from otlp.drafts import Hub
from otlp.plan import Marginals, Plan
from otlp.plan.plan import residual_distribution
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import ClosedForm
from otlp.timing import Stopwatch


class HubPlan(Plan):
    """SpecHub's rule: test the other token first, then the hub (SpecHub, Algorithms 2 and 3).

    Attributes
    ----------
    before, after : ndarray, shape (V,)
        Probability that x is accepted, given the pair (x, hub) and given (hub, x).
    hub_before, hub_after : float
        Probability that the hub is accepted, given that x was rejected from the same pair.
    residual : ndarray, shape (V,)
        Distribution of the replacement.
    """

    def __init__(self, problem: Problem, drafts: Hub) -> None:
        super().__init__(problem)
        target, hub = problem.target, drafts.hub
        self.drafts = drafts
        wanted = target.copy()
        wanted[hub] = 0.0
        taken_before = np.minimum(wanted, drafts.before_hub)
        taken_after = np.minimum(wanted - taken_before, drafts.after_hub)
        self.before = _share(taken_before, drafts.before_hub)
        self.after = _share(taken_after, drafts.after_hub)
        # The remaining mass of the pairs goes to the hub: first from (hub, x), then from (x, hub).
        left_after = float(np.maximum(drafts.after_hub - taken_after, 0.0).sum())
        left_before = float(np.maximum(drafts.before_hub - taken_before, 0.0).sum())
        hub_of_after = min(target[hub], left_after)
        hub_of_before = min(target[hub] - hub_of_after, left_before)
        self.hub_after = hub_of_after / left_after if left_after > 0.0 else 1.0
        self.hub_before = hub_of_before / left_before if left_before > 0.0 else 1.0
        accepted = taken_before + taken_after
        accepted[hub] = hub_of_after + hub_of_before
        self.residual = residual_distribution(target, accepted)

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional distribution given the pair; O(V)."""
        one, two = self._check(draft_tokens)
        hub = self.drafts.hub
        other, share, hub_share = (
            (two, self.after[two], self.hub_after)
            if one == hub
            else (one, self.before[one], self.hub_before)
        )
        result: FloatArray = self.residual * ((1.0 - share) * (1.0 - hub_share))
        result[other] += share
        result[hub] += (1.0 - share) * hub_share
        return result

    @own_float_errors
    def first_draft(self) -> FloatArray:
        """Return P(verified token = first draft = x), shape (V,); O(V)."""
        hub, pairs = self.drafts.hub, self.drafts
        rest = (1.0 - self.before) * (1.0 - self.hub_before) * self.residual
        first: FloatArray = pairs.before_hub * (self.before + rest)
        taken = self.hub_after + (1.0 - self.hub_after) * self.residual[hub]
        first[hub] = pairs.after_hub @ (1.0 - self.after) * taken
        return first

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance, including drafted replacements, and output distribution; O(V)."""
        accepted = np.zeros(self.problem.vocab_size)
        replaced = np.zeros(self.problem.vocab_size)  # By x: both tokens were rejected.
        hub = self.drafts.hub
        for pairs, share, hub_share in (
            (self.drafts.before_hub, self.before, self.hub_before),
            (self.drafts.after_hub, self.after, self.hub_after),
        ):
            left = pairs * (1.0 - share)
            accepted += pairs * share
            accepted[hub] += float(left.sum()) * hub_share
            replaced += left * (1.0 - hub_share)
        total = float(replaced.sum())
        output = accepted + total * self.residual
        replaced[hub] = total
        return Marginals(accepted + replaced * self.residual, output, "closed form")


@dataclass(frozen=True)
class HubSolver(ClosedForm):
    """SpecHub (Algorithms 2 and 3): a closed form, optimal for SpecHub's pairs.

    The acceptance is p_a + sum over x other than a of min(p_x, q_x / (1 - q_a)) for the hub a;
    O(V).

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.Hub([0.5, 0.3, 0.2]))
    >>> round(otlp.solve(problem, "hub").acceptance, 6)
    1.0
    """

    name: ClassVar[str] = "hub"

    def supports(self, problem: Problem) -> Capability:
        """Support SpecHub's pairs."""
        check_problem(problem)
        return supported_if(
            isinstance(problem.drafts, Hub),
            "the drafts must be SpecHub's pairs, which contain the most likely token (otlp.Hub), "
            f"got {problem.drafts}; use orderings, or martingale for i.i.d. drafts",
        )

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the plan."""
        assert isinstance(problem.drafts, Hub)
        return Answer(HubPlan(problem, problem.drafts), Guarantee.OPTIMAL)


def _share(taken: FloatArray, mass: FloatArray) -> FloatArray:
    return np.divide(taken, mass, out=np.ones_like(mass), where=mass > 0.0)
