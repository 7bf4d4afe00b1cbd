"""The lossless plan of global resolution: shares by a softmax, scaled to what is wanted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import TokenSets
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals, Plan
from otlp.reductions.complementary_slackness import Side
from otlp.reductions.truncation import Buckets


class SoftmaxSystem(Plan):
    """Accept by a softmax over one variable a label (Global Resolution, Eq. 14 and 17), scaled.

    A token that would get more than `wanted` has its shares scaled down, and what is left of
    `wanted` replaces rejected drafts; so the output does not depend on how good the shares are.

    Tokens may share a label (a bucket): a label's share goes to one of its drafts at random.

    Parameters
    ----------
    side : Side
        The system: its problem, and what it has to put out.
    given : ndarray, shape (G,)
        Mass that this softmax gives to each label, over all tuples.
    buckets : Buckets
        The label of each token; a label's mass is split among its tokens by their draft's.
    alpha : ndarray, shape (G,)
        The variables.
    sets : TokenSets, optional
        All sets of labels, where they are few enough to be listed.
    """

    def __init__(
        self,
        side: Side,
        given: FloatArray,
        buckets: Buckets,
        alpha: FloatArray,
        sets: TokenSets | None = None,
    ) -> None:
        super().__init__(side.problem)
        self.side, self.labels, self.alpha, self.sets = side, buckets.labels, alpha, sets
        self.slack = float(side.inside)
        self.raw, self.kept, left = _scaled(
            side.wanted, given, buckets.labels, side.draft, buckets.draft
        )
        rest = float(left.sum())
        self.residual = left / rest if rest > 0.0 else side.problem.target

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional distribution for a tuple of this system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        labels = self.labels[tokens]
        accepted, rest = accepted_shares(labels, self.alpha, self.slack, self._factors(tokens))
        result: FloatArray = rest * self.residual
        for token, given in zip(tokens.tolist(), accepted.tolist(), strict=True):
            result[token] += given
        return result

    def marginals(self) -> Marginals:
        """Closed form; O(V), and O(nnz) for drafted replacements, where token sets are listed."""
        rejected = max(0.0, self.side.mass - float(self.kept.sum()))
        output = self.kept + rejected * self.residual
        if self.sets is None or np.count_nonzero(self.labels >= 0) > self.alpha.size:
            return Marginals(self.kept, output, "closed form, drafted replacements left out")
        return Marginals(self.kept + self._drafted_replacements(self.sets), output, "closed form")

    def _drafted_replacements(self, sets: TokenSets) -> FloatArray:
        """Probability that a replacement is token i and was drafted; no two share a label."""
        share = softmax_by_set(sets, self.alpha, self.slack)
        tokens = np.flatnonzero(self.labels >= 0)
        accept = np.zeros(self.alpha.size)
        accept[self.labels[tokens]] = self._factors(tokens)
        taken = sum_by(sets.rows, share * accept[sets.members], sets.mass.size)
        rejected = sets.mass * np.maximum(1.0 - taken, 0.0)
        drafted = sum_by(sets.members, rejected[sets.rows], accept.size)
        replaced = np.zeros(self.kept.size)
        replaced[tokens] = drafted[self.labels[tokens]] * self.residual[tokens]
        return replaced

    def _factors(self, tokens: IntArray) -> FloatArray:
        """What the shares of tokens are scaled by, to what is wanted of them."""
        raw, factors = self.raw[tokens], np.ones(tokens.size)
        np.divide(self.kept[tokens], raw, out=factors, where=raw > 0.0)
        return factors


@compiled(error_model="numpy")
def _scaled(
    wanted: FloatArray, given: FloatArray, labels: IntArray, draft: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What tokens get, what is kept of that, and what is left to replace."""
    raw, kept, left = np.zeros(wanted.size), np.empty(wanted.size), np.empty(wanted.size)
    for x in range(wanted.size):
        if labels[x] >= 0:
            # A quotient of masses first: one by itself takes all, also where it is subnormal.
            raw[x] = given[labels[x]] * (draft[x] / weights[labels[x]])
    for x in range(wanted.size):
        kept[x] = min(raw[x], wanted[x])
        left[x] = wanted[x] - kept[x]
    return raw, kept, left


@compiled
def accepted_shares(
    labels: IntArray, alpha: FloatArray, slack: float, factors: FloatArray
) -> tuple[FloatArray, float]:
    """Chance that each draft of a tuple is accepted, shape (n,), and that none is.

    Softmax over the labels that were drafted, each counted once; its drafts share it.
    """
    accepted, taken = np.zeros(labels.size), 0.0
    peak = 0.0 if slack > 0.0 else -np.inf
    for label in labels:
        if label >= 0:
            peak = max(peak, alpha[label])
    total = slack * np.exp(-peak) if slack > 0.0 else 0.0
    for i in range(labels.size):
        if labels[i] >= 0:
            alike = np.sum(labels == labels[i])
            accepted[i] = np.exp(alpha[labels[i]] - peak) / alike
            total += accepted[i]
    for i in range(labels.size):
        if labels[i] >= 0:
            accepted[i] *= factors[i] / total
            taken += accepted[i]
    return accepted, max(0.0, 1.0 - taken)


def softmax_by_set(sets: TokenSets, alpha: FloatArray, slack: float) -> FloatArray:
    """e^alpha / (slack + sum of e^alpha) in each of many sets, shape (nnz,), without overflow."""
    count = sets.mass.size
    if count == 0:
        return np.empty(0)
    rows = sets.rows
    peak = np.maximum.reduceat(alpha[sets.members], sets.offsets[:-1])
    if slack:
        peak = np.maximum(peak, 0.0)
    weight: FloatArray = np.exp(alpha[sets.members] - peak[rows])
    total = sum_by(rows, weight, count)
    if slack:
        total += slack * np.exp(-peak)
    weight /= total[rows]
    return weight
