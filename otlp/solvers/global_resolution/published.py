"""The plan of the paper's Eq. 18: a softmax over all drafted tokens, close to the target only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import TokenSets
from otlp.drafts.token_sets import list_sets, set_count
from otlp.plan import Marginals, Plan
from otlp.plan.plan import residual_distribution
from otlp.reductions.complementary_slackness import Side
from otlp.solvers.global_resolution.softmax import accepted_shares, softmax_by_set

ENUMERATED_SETS = 500_000
"""Up to so many token sets the marginals are enumerated; beyond, they are a bound."""


class PublishedSystem(Plan):
    """One system of Eq. 18: accept by the softmax, untouched, and replace by a fixed distribution.

    Not lossless: the output is off by what the truncation and the gradient leave (Lemma 6.6).

    Parameters
    ----------
    side : Side
        The system: its problem, and the tokens that it accepts.
    alpha : ndarray, shape (m,)
        The variables of the tokens of T; those of all others are 0.
    truncated : ndarray of int64, shape (m,)
        The truncation set T.
    left_out : float
        Mass of the tuples that leave T: epsilon_T or gamma_T.
    """

    def __init__(self, side: Side, alpha: FloatArray, truncated: IntArray, left_out: float) -> None:
        super().__init__(side.problem)
        self.side, self.slack = side, float(side.inside)
        self.draft, self.alpha = side.draft, np.zeros(side.subset.size)
        self.alpha[truncated] = alpha
        self.truncated, self.left_out = truncated, left_out
        left = side.wanted if side.inside else side.problem.target - side.wanted
        left = np.where(side.subset, 0.0, left)
        self.residual = residual_distribution(left, 0.0) if left.any() else side.problem.target

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional of the plan, C(., tuple) normalised; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        labels = np.where(self.side.accepting[tokens], tokens, -1)
        accepted, rest = accepted_shares(labels, self.alpha, self.slack, np.ones(tokens.size))
        law: FloatArray = rest * self.residual
        np.add.at(law, tokens, accepted)
        return law

    def marginals(self) -> Marginals:
        """Sum over all token sets where they can be listed, else over those inside T.

        In the second case the rest of the mass is known to be at most `left_out`, and where it
        goes is not; the acceptance is then a lower bound.
        """
        side = self.side
        drafted = np.flatnonzero(side.accepting & (self.draft > 0.0)).astype(np.int64)
        every = set_count(drafted.size, self.problem.n)[0] <= ENUMERATED_SETS
        tokens, unknown = (drafted, 0.0) if every else (self.truncated, self.left_out)
        sets = list_sets(self.draft[tokens], self.problem.n, side.ignored)
        sets = TokenSets(tokens[sets.members], sets.offsets, sets.mass)
        share = softmax_by_set(sets, self.alpha, self.slack)
        given = sum_by(sets.members, share * sets.mass[sets.rows], self.draft.size)
        rejected = max(0.0, side.mass - unknown - float(given.sum()))
        method = "enumerated" if every else "bound"
        return Marginals(given, given + rejected * self.residual, method, unknown)
