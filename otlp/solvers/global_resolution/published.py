"""The plan of the paper's Eq. 18, a softmax over all drafted tokens; approximately lossless."""

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
"""Maximum number of token sets for enumerated marginals; beyond, the marginals are a bound."""


class PublishedSystem(Plan):
    """One system of Eq. 18: accept with the unscaled softmax, replace from a fixed distribution.

    Not lossless: the truncation and the remaining gradient change the output (Lemma 6.6).

    Parameters
    ----------
    side : Side
        The system: its problem, and the tokens that it accepts.
    alpha : ndarray, shape (m,)
        Variables of the tokens in T; the variables of all other tokens are 0.
    truncated : ndarray of int64, shape (m,)
        Truncation set T.
    left_out : float
        Mass of the tuples with a token outside T: epsilon_T or gamma_T.
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
        """Return the conditional distribution, C(., tuple) normalised; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        labels = np.where(self.side.accepting[tokens], tokens, -1)
        accepted, rest = accepted_shares(labels, self.alpha, self.slack, np.ones(tokens.size))
        law: FloatArray = rest * self.residual
        np.add.at(law, tokens, accepted)
        return law

    def marginals(self) -> Marginals:
        """Return the sum over all token sets if they can be listed, else over the sets inside T.

        In the second case, the remaining mass is at most `left_out` and its distribution is
        unknown; the acceptance is then a lower bound.
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
