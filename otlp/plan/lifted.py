"""Plan of a problem that was restricted to fewer tokens, as a plan of the original problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.plan.plan import Marginals, Plan
from otlp.problem import Problem


class LiftedPlan(Plan):
    """Undo a restriction to the tokens that can be drafted.

    Parameters
    ----------
    problem : Problem
        The original problem over V tokens.
    plan : Plan
        A plan of the restricted problem, where token j represents ``tokens[j]``, and the optional
        token ``len(tokens)`` represents all tokens that are never drafted.
    tokens : ndarray, shape (k,), int64
        The kept tokens, ascending.
    outside : ndarray, shape (V,)
        Target on the tokens that are never drafted, normalised; zero if the target has no mass
        there.

    Examples
    --------
    >>> import otlp
    >>> from otlp.reductions import PrimalDual, Support
    >>> problem = otlp.Problem([0.1, 0.6, 0.2, 0.1], otlp.IID([0.5, 0.5, 0.0, 0.0], n=2))
    >>> small, inverse = Support().apply(problem)
    >>> plan = Support().invert(PrimalDual(otlp.solve(small).plan), inverse).primal
    >>> type(plan).__name__, plan.conditional([0, 1]).round(6).tolist()
    ('LiftedPlan', [0.075, 0.7, 0.15, 0.075])
    """

    def __init__(self, problem: Problem, plan: Plan, tokens: IntArray, outside: FloatArray) -> None:
        super().__init__(problem)
        self.plan = plan
        self.tokens = tokens
        self.outside = outside

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the distribution of the verified token; see `Plan.conditional`."""
        return self._lift(self.plan.conditional(self._rename(draft_tokens)))

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token given the drafted tuple; see `Plan.sample`."""
        token = self.plan.sample(self._rename(draft_tokens), rng)
        if token < self.tokens.size:
            return int(self.tokens[token])
        return int(invert_cdf(np.cumsum(self.outside), rng.random()))

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`."""
        names = self.plan._draw(np.searchsorted(self.tokens, tokens).astype(np.int64), rng)
        verified = self.tokens[np.minimum(names, self.tokens.size - 1)]
        outside = np.flatnonzero(names == self.tokens.size)
        verified[outside] = invert_cdf(np.cumsum(self.outside), rng.random(outside.size))
        return verified

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output of the restricted plan on the original tokens."""
        small = self.plan.marginals()
        accepted, output = self._lift(small.acceptance), self._lift(small.output)
        return replace(small, acceptance=accepted, output=output)

    def _rename(self, draft_tokens: npt.ArrayLike) -> IntArray:
        return np.searchsorted(self.tokens, self._check(draft_tokens)).astype(np.int64)

    def _lift(self, law: FloatArray) -> FloatArray:
        lifted = np.zeros(self.problem.vocab_size)
        lifted[self.tokens] = law[: self.tokens.size]
        if law.size > self.tokens.size:
            lifted += law[self.tokens.size] * self.outside
        return lifted
