"""The lossless plan of global resolution: a softmax, scaled to the wanted masses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import TokenSets
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals, Plan
from otlp.plan.plan import normalised_or
from otlp.reductions.complementary_slackness import Side
from otlp.reductions.truncation import Buckets


class SoftmaxSystem(Plan):
    """Accept with a scaled softmax, one variable per label (Global Resolution, Eq. 14 and 17).

    If the mass of a token exceeds `wanted`, its shares are scaled down; the remainder of `wanted`
    is the distribution of replacements.  So the output does not depend on the accuracy of the
    shares.

    Tokens may share a label (a bucket): the share of a label goes to one of its drafts at random.

    Parameters
    ----------
    side : Side
        The system: its problem, and the output that it must have.
    given : ndarray, shape (G,)
        Mass of each label under this softmax, over all tuples.
    buckets : Buckets
        Label of each token; the mass of a label is split in proportion to the draft.
    alpha : ndarray, shape (G,)
        Variables.
    sets : TokenSets, optional
        All sets of labels, if they can be listed.
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
        self.residual = normalised_or(left, side.problem.target)

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional distribution of a tuple of this system; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        labels = self.labels[tokens]
        accepted, rest = accepted_shares(labels, self.alpha, self.slack, self._factors(tokens))
        result: FloatArray = rest * self.residual
        np.add.at(result, tokens, accepted)
        return result

    def marginals(self) -> Marginals:
        """Return the marginals; O(V), plus O(nnz) for drafted replacements if sets are listed."""
        rejected = max(0.0, self.side.mass - float(self.kept.sum()))
        output = self.kept + rejected * self.residual
        if self.sets is None or np.count_nonzero(self.labels >= 0) > self.alpha.size:
            return Marginals(self.kept, output, "closed form, drafted replacements left out")
        return Marginals(self.kept + self._drafted_replacements(self.sets), output, "closed form")

    def _drafted_replacements(self, sets: TokenSets) -> FloatArray:
        """Return P(replacement is token i and i was drafted); requires distinct labels."""
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
        """Return the scale factors of the tokens' shares."""
        raw, factors = self.raw[tokens], np.ones(tokens.size)
        np.divide(self.kept[tokens], raw, out=factors, where=raw > 0.0)
        return factors


@compiled
def _scaled(
    wanted: FloatArray, given: FloatArray, labels: IntArray, draft: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return unscaled mass, scaled mass, and residual of each token."""
    raw, kept, left = np.zeros(wanted.size), np.empty(wanted.size), np.empty(wanted.size)
    for x in range(wanted.size):
        if labels[x] >= 0:
            # Divide first, so that a single token has ratio 1 also if its mass is subnormal.
            raw[x] = given[labels[x]] * (draft[x] / weights[labels[x]])
        kept[x] = min(raw[x], wanted[x])
        left[x] = wanted[x] - kept[x]
    return raw, kept, left


@compiled
def accepted_shares(
    labels: IntArray, alpha: FloatArray, slack: float, factors: FloatArray
) -> tuple[FloatArray, float]:
    """Return the acceptance probability of each draft, shape (n,), and that of rejection.

    The softmax is over the distinct drafted labels; drafts with the same label share its value.
    """
    accepted, taken = np.zeros(labels.size), 0.0
    peak = 0.0 if slack > 0.0 else -np.inf
    for label in labels:
        if label >= 0:
            peak = max(peak, alpha[label])
    total = slack * np.exp(-peak) if slack > 0.0 else 0.0
    for i in range(labels.size):
        if labels[i] >= 0:
            alike = 0
            for label in labels:
                alike += label == labels[i]
            accepted[i] = np.exp(alpha[labels[i]] - peak) / alike
            total += accepted[i]
    for i in range(labels.size):
        if labels[i] >= 0:
            accepted[i] *= factors[i] / total
            taken += accepted[i]
    return accepted, max(0.0, 1.0 - taken)


def softmax_by_set(sets: TokenSets, alpha: FloatArray, slack: float) -> FloatArray:
    """Return e^alpha / (slack + sum of e^alpha) in each set, shape (nnz,), without overflow."""
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
