"""Plan in two systems: one for the tuples inside H*, one for the tuples that leave H*.

By complementary slackness (Global Resolution, Theorem 5.1) a tuple inside H* accepts tokens of
H* only, and a tuple that leaves H* accepts tokens outside H* only.  The outputs of the systems add
up to the target, and the conditional of a tuple depends on its own system only.
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
        Plans of the tuples that leave H*, and of the tuples inside H*.  Each is defined for its own
        tuples only, and its marginals sum to their probability.
    """

    def __init__(self, problem: Problem, subset: Mask, outer: Plan, inner: Plan) -> None:
        super().__init__(problem)
        self.subset, self.outer, self.inner = subset, outer, inner

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional of the tuple's own system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        system = self.inner if self.subset[tokens].all() else self.outer
        return system.conditional(tokens)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return the sums of the marginals of both systems."""
        outer, inner = self.outer.marginals(), self.inner.marginals()
        return Marginals(
            outer.acceptance + inner.acceptance,
            outer.output + inner.output,
            outer.method if inner.method == outer.method else f"{outer.method}, {inner.method}",
            outer.slack + inner.slack,
        )
