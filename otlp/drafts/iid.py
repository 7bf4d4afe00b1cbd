"""n independent and identically distributed drafts, the most common scheme in the literature."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, IntArray, Mask, frozen, invert_cdf
from otlp.drafts.independent import product_tuples
from otlp.drafts.one_draft import OneDraft
from otlp.drafts.token_sets import DraftTuples, TokenSets, as_float, list_sets, set_count
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability
from otlp.numerics.power_slope import power_slope
from otlp.numerics.ratio_bins import best_prefix_subset
from otlp.numerics.sums import sum_in


class IID(OneDraft):
    """n tokens drawn independently from one draft distribution, with replacement.

    Parameters
    ----------
    draft : array_like, shape (V,)
        The draft distribution q.
    n : int
        Number of drafts, at least 1.

    Raises
    ------
    InvalidDistributionError
        If `draft` is not a probability vector.
    InvalidInputError
        If `n` is not an integer of at least 1.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.IID([0.5, 0.3, 0.2], n=2)
    >>> float(drafts.probability([0, 1]))
    0.15
    """

    def _check_support(self, draft: FloatArray) -> FloatArray:
        return draft

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return the draft distribution, shape (V,)."""
        checks.check_drawn(drawn, self.n, self.vocab_size)
        return self.draft

    @property
    def independent_drafts(self) -> FloatArray:
        """The draft distribution n times, shape (n, V)."""
        return np.broadcast_to(self.draft, (self.n, self.vocab_size))

    _independent = independent_drafts  # checked by the constructor

    @cached_property
    def mean_draft(self) -> FloatArray:
        """The draft distribution, shape (V,)."""
        return self.draft

    @cached_property
    def inclusion(self) -> FloatArray:
        """1 - (1 - q)^n, accurate for tiny q; shape (V,)."""
        return frozen(inclusion_probability(self.draft, self.n))

    def best_subset(self, target: FloatArray) -> Mask:
        """Return H*, the tokens of least p/q (Global Resolution, section 4.2); O(V)."""
        return best_prefix_subset(target, self.draft, self.n)

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Return (B + q_i)^n - B^n for the mass B below i, without cancellation; O(V log n)."""
        return _priority_marginals(self.draft, self.n, checks.check_order(order, self.vocab_size))

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.draft)

    def _probability(self, rows: IntArray) -> FloatArray:
        return np.asarray(np.prod(self.draft[rows], axis=1))

    def _possible(self, tokens: IntArray) -> bool:
        return bool(min(self.draft[tokens].tolist()) > 0.0)

    def _possible_each(self, rows: IntArray) -> Mask:
        return np.asarray((self.draft[rows] > 0.0).all(axis=1))

    def mass_within(self, subset: npt.ArrayLike) -> float:
        """Return q(S)^n; O(V)."""
        inside = sum_in(self.draft, checks.check_mask(subset, self.vocab_size))
        return min(1.0, inside) ** self.n

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Return 1 - (1 - q(S))^n, accurate for tiny q(S); O(V)."""
        inside = sum_in(self.draft, checks.check_mask(subset, self.vocab_size))
        return float(inclusion_probability(inside, self.n))

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # By inversion; O(V) once, then O(n log V) per tuple.
        return invert_cdf(self._cumulative, rng.random((size, self.n)))

    def tuple_count(self) -> float:
        """Return k^n for a support of k tokens."""
        return as_float(int(np.count_nonzero(self.draft)) ** self.n)

    def repeat_probability(self) -> float:
        """Return 1 - n! e_n(q), with e_n the elementary symmetric polynomial; O(n V)."""
        different = np.zeros(self.n + 1)
        different[0] = 1.0
        places = np.arange(1, self.n + 1)
        for chance in self.draft[self.draft > 0.0]:
            different[1:] += chance * places * different[:-1]
        return max(0.0, 1.0 - float(different[-1]))

    def set_count(self) -> tuple[float, float]:
        """Return the number of sets of 1 to n tokens of the support, and of their members."""
        return set_count(int(np.count_nonzero(self.draft)), self.n)

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability; k^n rows for a support of k tokens."""
        what = f"{np.count_nonzero(self.draft)}^{self.n}"
        return product_tuples(self.independent_drafts, what, self.tuple_count(), memory_limit)

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the sets of distinct tokens with their masses, without listing the tuples.

        A set S of m tokens has mass n! [x^n] prod_{i in S} (exp(q_i x) - 1), computed as a sum of
        positive multinomial terms, because the alternating sum of inclusion-exclusion cancels.
        There are sum_m binom(k, m) sets for a support of k tokens; O(n^2) time per set.
        """
        tokens = np.flatnonzero(self.draft).astype(np.int64)
        sets = list_sets(self.draft[tokens], self.n, memory_limit=memory_limit)
        return TokenSets(tokens[sets.members], sets.offsets, sets.mass)


@compiled
def _priority_marginals(draft: FloatArray, n: int, order: IntArray) -> FloatArray:
    result = np.empty(draft.size)
    below = 0.0
    for place in range(order.size - 1, -1, -1):
        own = draft[order[place]]
        result[order[place]] = own * power_slope(below, below + own, n)
        below += own
    return result
