"""The lossless plan of global resolution: shares by a softmax, scaled to what is wanted."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray, sum_by
from otlp.drafts import TokenSets
from otlp.plan.slackness import LosslessSystem
from otlp.problem import Problem

__all__ = ["SoftmaxSystem", "softmax_by_set", "softmax_shares"]


class SoftmaxSystem(LosslessSystem):
    """Shares by a softmax over one variable a label (Global Resolution, Eq. 14 and 17).

    Parameters
    ----------
    problem, wanted, mass, given, labels, draft
        As in `LosslessSystem`; `given` is what this softmax gives.
    alpha : ndarray, shape (G,)
        The variables.
    slack : float
        0 for the outer system, 1 for the inner.
    sets : TokenSets, optional
        All sets of labels, where they are few enough to be listed.
    """

    def __init__(
        self,
        problem: Problem,
        wanted: FloatArray,
        mass: float,
        given: FloatArray,
        labels: IntArray,
        draft: FloatArray,
        alpha: FloatArray,
        slack: float,
        sets: TokenSets | None = None,
    ) -> None:
        super().__init__(problem, wanted, mass, given, labels, draft)
        self.alpha, self.slack, self.sets = alpha, slack, sets

    def shares(self, labels: IntArray) -> FloatArray:
        """Softmax over the labels of a tuple."""
        return softmax_shares(self.alpha[labels], self.slack)

    def lucky(self) -> FloatArray | None:
        """Known where the sets are listed and no two tokens share a label."""
        if self.sets is None or not self.separate:
            return None
        return self._lucky(self.sets, softmax_by_set(self.sets, self.alpha, self.slack))


def softmax_shares(alpha: FloatArray, slack: float) -> FloatArray:
    """e^alpha / (slack + sum of e^alpha), shape (m,), without overflow."""
    if alpha.size == 0:
        return alpha
    peak = max(float(alpha.max()), 0.0) if slack else float(alpha.max())
    weight: FloatArray = np.exp(alpha - peak)
    weight /= weight.sum() + (slack * np.exp(-peak) if slack else 0.0)
    return weight


def softmax_by_set(sets: TokenSets, alpha: FloatArray, slack: float) -> FloatArray:
    """The same for each of many sets, shape (nnz,)."""
    if len(sets) == 0:
        return np.empty(0)
    peak = np.maximum.reduceat(alpha[sets.members], sets.offsets[:-1])
    if slack:
        peak = np.maximum(peak, 0.0)
    weight: FloatArray = np.exp(alpha[sets.members] - peak[sets.rows])
    total = sum_by(sets.rows, weight, len(sets))
    if slack:
        total += slack * np.exp(-peak)
    weight /= total[sets.rows]
    return weight
