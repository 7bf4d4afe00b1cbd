"""n drafts, independent and identically distributed: the scheme of most of the literature."""

from __future__ import annotations

from functools import cached_property
from math import comb

import numpy as np
import numpy.typing as npt
from numba import njit

from otlp import distribution
from otlp.distribution import FloatArray, IntArray, as_distribution, invert_cdf
from otlp.drafts.scheme import (
    MEMORY_LIMIT,
    DraftScheme,
    DraftTuples,
    TokenSets,
    check_count,
    check_mask,
    check_memory,
    check_order,
)
from otlp.errors import SizeLimitError

__all__ = ["IID", "list_sets", "pascal", "set_count"]

MOST_DRAFTS = 1_000
"""Beyond this n binomials overflow."""


class IID(DraftScheme):
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
        If `n` is not a whole number of at least 1.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.IID([0.5, 0.3, 0.2], n=2)
    >>> float(drafts.probability([0, 1]))
    0.15
    """

    def __init__(self, draft: npt.ArrayLike, n: int) -> None:
        self.draft: FloatArray = as_distribution(draft, "draft")
        self._n = check_count(n)

    @property
    def n(self) -> int:
        """Number of drafted tokens."""
        return self._n

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.draft.size

    @property
    def mean_draft(self) -> FloatArray:
        """The draft distribution itself, shape (V,)."""
        return self.draft

    @cached_property
    def inclusion(self) -> FloatArray:
        """1 - (1 - q)^n, accurate for tiny q; shape (V,)."""
        with np.errstate(divide="ignore"):
            result: FloatArray = -np.expm1(self.n * np.log1p(-np.minimum(self.draft, 1.0)))
        return result

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """(B + q_i)^n - B^n for the mass B below i, without the difference; O(nV)."""
        return _priority_marginals(self.draft, self.n, check_order(order, self.vocab_size))

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.draft)

    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Probability of drafted tuples, shape (..., n) -> (...)."""
        result: FloatArray = np.prod(self.draft[np.asarray(draft_tokens)], axis=-1)
        return result

    def possible(self, draft_tokens: IntArray) -> bool:
        """Whether every token can be drafted."""
        return bool(min(self.draft[draft_tokens].tolist()) > 0.0)

    def mass_within(self, subset: npt.ArrayLike) -> float:
        """q(S)^n; O(V)."""
        return float((self.draft * check_mask(subset, self.vocab_size)).sum()) ** self.n

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """1 - (1 - q(S))^n, accurate for tiny q(S); O(V)."""
        inside = float((self.draft * check_mask(subset, self.vocab_size)).sum())
        return 1.0 if inside >= 1.0 else float(-np.expm1(self.n * np.log1p(-inside)))

    def sample(self, rng: np.random.Generator, size: int | None = None) -> IntArray:
        """Draw tuples by inversion; O(V) once, then O(n log V) a tuple."""
        shape = (self.n,) if size is None else (size, self.n)
        return invert_cdf(self._cumulative, rng.random(shape))

    def tuple_count(self) -> float:
        """k^n for a support of k tokens."""
        with np.errstate(over="ignore"):
            return float(np.float64(np.count_nonzero(self.draft)) ** self.n)

    def repeat_probability(self) -> float:
        """1 - n! e_n(q), with e_n the elementary symmetric polynomial; O(n V)."""
        different = np.zeros(self.n + 1)
        different[0] = 1.0
        places = np.arange(1, self.n + 1)
        for chance in self.draft[self.draft > 0.0]:
            different[1:] += chance * places * different[:-1]
        return max(0.0, 1.0 - float(different[-1]))

    def set_count(self) -> tuple[float, float]:
        """Number of sets of 1 to n of the k tokens, and of their members."""
        return set_count(int(np.count_nonzero(self.draft)), self.n)

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability; k^n rows for a support of k tokens."""
        tokens = np.flatnonzero(self.draft)
        needed = 8.0 * self.tuple_count() * (2 * self.n + 2)
        check_memory(f"listing {tokens.size}^{self.n} tuples", needed, memory_limit)
        grid = np.indices((tokens.size,) * self.n).reshape(self.n, -1).T
        listed = tokens[grid].astype(np.int64)
        mass = self.probability(listed)
        positive = mass > 0.0  # a product of tiny probabilities can underflow
        return DraftTuples(listed[positive], mass[positive])

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the sets of distinct tokens with their masses, without listing the tuples.

        A set S of m tokens has mass n! [x^n] prod_{i in S} (exp(q_i x) - 1): a sum of positive
        multinomial terms, not the alternating sum of inclusion-exclusion, which cancels.
        sum_m binom(k, m) sets for a support of k tokens, O(n^2) time each.
        """
        tokens = np.flatnonzero(self.draft).astype(np.int64)
        sets = list_sets(self.draft[tokens], self.n, memory_limit=memory_limit)
        return TokenSets(tokens[sets.members], sets.offsets, sets.mass)

    def top_k(self, k: int) -> IID:
        """N drafts from the k most likely tokens, renormalised."""
        return IID(distribution.top_k(self.draft, k), self.n)

    def restrict(self, tokens: IntArray, vocab_size: int) -> IID:
        """Rename ``tokens[j]`` to j; see `DraftScheme.restrict`."""
        draft = np.zeros(vocab_size)
        draft[: tokens.size] = self.draft[tokens]
        return IID(draft, self.n)


def set_count(tokens: int, n: int) -> tuple[float, float]:
    """Number of sets of 1 to n of so many tokens, and of their members."""
    sizes = [comb(tokens, m) for m in range(1, min(n, tokens) + 1)]
    return float(sum(sizes)), float(sum(m * size for m, size in enumerate(sizes, start=1)))


def list_sets(
    draft: FloatArray, n: int, ignored: float = 0.0, memory_limit: int = MEMORY_LIMIT
) -> TokenSets:
    """List all sets of 1 to n tokens with the mass of the n-tuples that draft just this set.

    Parameters
    ----------
    draft : ndarray, shape (k,)
        Probabilities of the k tokens; they need not sum to one.
    n : int
        Number of drafts.
    ignored : float
        Probability of further tokens, which a tuple may hold beside the set.
    memory_limit : int
        Bytes that the list may need.

    Returns
    -------
    TokenSets
        By size and then lexicographically; sets whose mass underflows are left out.

    Raises
    ------
    SizeLimitError
        If the list would need more than `memory_limit` bytes, or n is above 1,000.

    Notes
    -----
    Set S has mass n! [x^n] exp(ignored x) prod_{i in S} (exp(q_i x) - 1): positive terms only.
    O(n^2) a set.
    """
    if n > MOST_DRAFTS:
        raise SizeLimitError(
            f"n is {n}: sets are listed for at most {MOST_DRAFTS} drafts, since binomials overflow "
            "beyond; martingale lists none"
        )
    count, total = set_count(draft.size, n)
    check_memory(
        f"listing the {count:,.0f} sets of up to {n} of {draft.size} tokens",
        8.0 * (2 * total + 2 * count + 1),
        memory_limit,
    )
    members, offsets, mass = _list_sets(draft, n, ignored, int(count), int(total))
    if not mass.all():
        keep = mass > 0.0
        lengths = np.diff(offsets)
        members = members[np.repeat(keep, lengths)]
        offsets = np.concatenate(([0], np.cumsum(lengths[keep]))).astype(np.int64)
        mass = mass[keep]
    return TokenSets(members, offsets, mass)


@njit(cache=True)
def _priority_marginals(draft: FloatArray, n: int, order: IntArray) -> FloatArray:
    result = np.empty(draft.size)
    below = 0.0
    for place in range(order.size - 1, -1, -1):
        own = draft[order[place]]
        value, power = 0.0, own
        for _ in range(n):
            value = value * (below + own) + power
            power *= below
        result[order[place]] = value
        below += own
    return result


@njit(cache=True)
def pascal(n: int) -> FloatArray:
    """Binomial coefficients, shape (n + 1, n + 1)."""
    rows = np.zeros((n + 1, n + 1))
    for d in range(n + 1):
        rows[d, 0] = 1.0
        for e in range(1, d + 1):
            rows[d, e] = rows[d - 1, e - 1] + rows[d - 1, e]
    return rows


@njit(cache=True)
def _list_sets(
    draft: FloatArray, n: int, ignored: float, count: int, total: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """All sets of 1 to n tokens, by size and then lexicographically, with their masses."""
    k = draft.size
    members = np.empty(total, np.int64)
    offsets = np.zeros(count + 1, np.int64)
    mass = np.empty(count)
    # Series are kept as d! times the coefficient of x^d, which neither over- nor underflows:
    # exp(q_i x) - 1 becomes q_i, q_i^2, ..., and a product takes binomials.
    powers = np.ones((k, n + 1))
    for i in range(k):
        for d in range(1, n + 1):
            powers[i, d] = powers[i, d - 1] * draft[i]
    binomial = pascal(n)
    row, at = 0, 0
    chosen = np.zeros(n, np.int64)
    series = np.zeros((n + 1, n + 1))  # series[m] = product over the first m chosen tokens
    series[0, 0] = 1.0  # and, before them, exp(ignored x)
    for d in range(1, n + 1):
        series[0, d] = series[0, d - 1] * ignored
    for m in range(1, min(n, k) + 1):
        for j in range(m):
            chosen[j] = j
        fresh = 0  # first place whose product is out of date
        while True:
            for j in range(fresh, m - 1):
                for d in range(n + 1):
                    value = 0.0
                    for e in range(1, d + 1):
                        value += binomial[d, e] * powers[chosen[j], e] * series[j, d - e]
                    series[j + 1, d] = value
            value = 0.0
            for e in range(1, n + 1):
                value += binomial[n, e] * powers[chosen[m - 1], e] * series[m - 1, n - e]
            mass[row] = value
            for j in range(m):
                members[at + j] = chosen[j]
            at += m
            row += 1
            offsets[row] = at
            fresh = m - 1
            while fresh >= 0 and chosen[fresh] == k - m + fresh:
                fresh -= 1
            if fresh < 0:
                break
            chosen[fresh] += 1
            for j in range(fresh + 1, m):
                chosen[j] = chosen[j - 1] + 1
    return members, offsets, mass
