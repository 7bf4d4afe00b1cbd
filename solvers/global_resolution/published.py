"""The plan of the paper's Eq. 18: a softmax over all drafted tokens, close to the target only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import TokenSets
from otlp.drafts.token_sets import list_sets, set_count
from otlp.plan import Marginals, Plan
from otlp.problem import Problem
from otlp.solvers.global_resolution.softmax import softmax_by_set, softmax_shares

ENUMERATED_SETS = 500_000
"""Up to so many token sets the marginals are enumerated; beyond, they are a bound."""


class PublishedSystem(Plan):
    """One system of Eq. 18: accept by the softmax, untouched, and replace by a fixed distribution.

    Not lossless: the output is off by what the truncation and the gradient leave (Lemma 6.6).

    Parameters
    ----------
    problem : Problem
    draft : ndarray, shape (V,)
        q.
    side : ndarray of bool, shape (V,)
        The tokens that the system accepts: those outside H*, or those inside.
    ignored : float
        Draft probability of the tokens that its tuples may hold beside.
    mass : float
        Probability of the system's tuples.
    alpha : ndarray, shape (V,)
        The variables; 0 for tokens left out by the truncation.
    slack : float
        0 for the outer system, 1 for the inner.
    residual : ndarray, shape (V,)
        Distribution of the replacement.
    truncated : ndarray of int64
        The truncation set T.
    left_out : float
        Mass of the tuples that leave T: epsilon_T or gamma_T.
    """

    def __init__(
        self,
        problem: Problem,
        draft: FloatArray,
        side: Mask,
        ignored: float,
        mass: float,
        alpha: FloatArray,
        slack: float,
        residual: FloatArray,
        truncated: IntArray,
        left_out: float,
    ) -> None:
        super().__init__(problem)
        self.draft, self.side, self.ignored, self.mass = draft, side, ignored, mass
        self.alpha, self.slack, self.residual = alpha, slack, residual
        self.truncated, self.left_out = truncated, left_out

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional of the plan, C(., tuple) normalised; see `Plan.conditional`."""
        shown = np.unique(self._check(draft_tokens))
        shown = shown[self.side[shown]]
        share = softmax_shares(self.alpha[shown], self.slack)
        law = max(0.0, 1.0 - float(share.sum())) * self.residual
        law[shown] += share
        return law

    def marginals(self) -> Marginals:
        """Sum over all token sets where they can be listed, else over those inside T.

        In the second case the rest of the mass is known to be at most `left_out`, and where it
        goes is not; the acceptance is then a lower bound.
        """
        drafted = np.flatnonzero(self.side & (self.draft > 0.0)).astype(np.int64)
        every = set_count(drafted.size, self.problem.n)[0] <= ENUMERATED_SETS
        tokens, unknown = (drafted, 0.0) if every else (self.truncated, self.left_out)
        sets = list_sets(self.draft[tokens], self.problem.n, self.ignored)
        sets = TokenSets(tokens[sets.members], sets.offsets, sets.mass)
        share = softmax_by_set(sets, self.alpha, self.slack)
        given = sum_by(sets.members, share * sets.mass[sets.rows], self.draft.size)
        rejected = max(0.0, self.mass - unknown - float(given.sum()))
        method = "enumerated" if every else "bound"
        return Marginals(given, given + rejected * self.residual, method, unknown)
