"""A plan in two systems: one for the tuples that stay in H*, one for those that leave it.

By complementary slackness (Global Resolution, Theorem 5.1) a tuple inside H* accepts tokens of
H* only, and one that leaves it accepts tokens outside H* only.  Each system has masses of its own
to put out, which add up to the target, and a tuple needs its own system alone.
"""

from __future__ import annotations

import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, Mask
from otlp.plan.plan import Marginals, Plan
from otlp.problem import Problem


class SlacknessPlan(Plan):
    """Join the outer and the inner system.

    Parameters
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*.
    outer, inner : Plan
        Of the tuples that leave H*, and of those inside it: each answers for its own tuples only,
        and its marginals sum to their probability.
    """

    def __init__(self, problem: Problem, subset: Mask, outer: Plan, inner: Plan) -> None:
        super().__init__(problem)
        self.subset, self.outer, self.inner = subset, outer, inner

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional distribution, from the tuple's own system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        system = self.inner if self.subset[tokens].all() else self.outer
        return system.conditional(tokens)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Sum over both systems."""
        outer, inner = self.outer.marginals(), self.inner.marginals()
        return Marginals(
            outer.acceptance + inner.acceptance,
            outer.output + inner.output,
            outer.method if inner.method == outer.method else f"{outer.method}, {inner.method}",
            outer.slack + inner.slack,
        )
