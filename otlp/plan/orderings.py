"""A random mixture of priority orderings: the drafted token that stands first is selected."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, invert_cdf, sum_by
from otlp.plan.plan import Marginals
from otlp.plan.selection import SelectionPlan
from otlp.problem import Problem

__all__ = ["OrderingsPlan"]

ENUMERATION_LIMIT = 1e5
"""Members of all token sets, times orderings, up to which the acceptance is enumerated."""


class OrderingsPlan(SelectionPlan):
    """Draw an ordering of the tokens, and select the drafted token that stands first in it.

    Works for any draft scheme: every selection that the drafts allow is such a mixture.

    Parameters
    ----------
    problem : Problem
    weights : ndarray, shape (R,)
        Probabilities of the orderings.
    orders : ndarray of int, shape (R, V)
        Permutations of the tokens, the preferred one first.
    selection_law : ndarray, shape (V,)
        The mixture's law of the selected token.

    Notes
    -----
    O(RV) memory; O(log R + n) to select, O(Rn) for `selection`.

    While the mixture is not optimal, a rejected token can be replaced by another drafted one.
    `marginals` counts this where the token sets are few enough to be listed; elsewhere its
    acceptance is that of the selected token, a lower bound that is short by at most the gap.
    """

    def __init__(
        self,
        problem: Problem,
        weights: FloatArray,
        orders: npt.NDArray[np.integer],
        selection_law: FloatArray,
    ) -> None:
        super().__init__(problem, selection_law)
        self.weights = weights / weights.sum()
        self.ranks: npt.NDArray[np.int32] = np.empty(orders.shape, dtype=np.int32)
        places = np.arange(problem.vocab_size, dtype=np.int32)
        for ranks, order in zip(self.ranks, orders, strict=True):
            ranks[order] = places
        self._cumulative = np.cumsum(self.weights)

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Draw an ordering, and take the drafted token that stands first."""
        ranks = self.ranks[invert_cdf(self._cumulative, rng.random())]
        return int(draft_tokens[np.argmin(ranks[draft_tokens])])

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Law of the selected token: the weights of the orderings in which it stands first."""
        tokens = np.unique(draft_tokens)
        first = np.argmin(self.ranks[:, tokens], axis=1).astype(np.int64)
        return tokens, sum_by(first, self.weights, tokens.size)

    def realised_selection_law(self) -> FloatArray:
        """Mix the priority marginals of the orderings as they are stored; O(R) passes."""
        law = np.zeros(self.problem.vocab_size)
        order = np.empty(self.problem.vocab_size, dtype=np.int64)
        places = np.arange(self.problem.vocab_size)
        for weight, ranks in zip(self.weights, self.ranks, strict=True):
            order[ranks] = places
            law += weight * self.problem.drafts.priority_marginals(order)
        return law

    def marginals(self) -> Marginals:
        """Acceptance and output law; see the notes of the class."""
        selected = super().marginals()
        if self.problem.drafts.set_count()[1] * self.weights.size > ENUMERATION_LIMIT:
            return selected
        return Marginals(
            selected.acceptance + self._replaced_by_drafted(), selected.output, "enumerated"
        )

    def _replaced_by_drafted(self) -> FloatArray:
        """Probability that the replacement is token i and was drafted, shape (V,)."""
        sets = self.problem.drafts.enumerate_sets()
        rejected = np.zeros(len(sets))
        for weight, ranks in zip(self.weights, self.ranks, strict=True):
            least = np.minimum.reduceat(ranks[sets.members], sets.offsets[:-1])
            first = np.argsort(ranks)[least]
            rejected += weight * (1.0 - self.accept[first])
        mass = rejected * sets.mass
        return self.residual * sum_by(sets.members, mass[sets.rows], self.problem.vocab_size)
