"""Lists of possible tuples and of their token sets, and their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf

import numpy as np

from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import ByValue, FloatArray, IntArray, ReadOnly, sum_by
from otlp.errors import SizeLimitError
from otlp.numerics.compiled import compiled

MOST_DRAFTS = 1_000
"""Largest n for which binomials do not overflow."""

TOO_MANY = 10**300
"""Count beyond which counts are infinite."""


@dataclass(frozen=True, eq=False)
class DraftTuples(ByValue):
    """All tuples of positive probability, one per row.

    Attributes
    ----------
    tokens : ndarray, shape (m, n), int64
        The tuples; all rows are different.
    mass : ndarray, shape (m,)
        Probabilities of the tuples, all positive.

    Examples
    --------
    >>> import otlp
    >>> tuples = otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2).enumerate_tuples()
    >>> tuples.tokens.tolist()
    [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]]
    >>> round(float(tuples.mass.sum()), 12)
    1.0
    """

    tokens: IntArray
    mass: FloatArray

    @classmethod
    def positive(cls, tokens: IntArray, mass: FloatArray) -> DraftTuples:
        """Build from different tuples, without those whose probability underflows to zero."""
        kept = mass > 0.0
        return cls(tokens[kept], mass[kept])

    @cached_property
    def _positions(self) -> dict[bytes, int]:
        return {row.tobytes(): j for j, row in enumerate(self.tokens)}

    def find(self, draft_tokens: IntArray) -> int:
        """Return the index of a tuple, or -1 if not listed; O(n), after a hash table in O(m n)."""
        return self._positions.get(draft_tokens.tobytes(), -1)


@dataclass(frozen=True, eq=False)
class TokenSets(ReadOnly):
    """The tuples merged by their set of distinct tokens, in compressed rows.

    Attributes
    ----------
    members : ndarray, shape (nnz,), int64
        Distinct tokens of set j, ascending: ``members[offsets[j]:offsets[j + 1]]``.
    offsets : ndarray, shape (m + 1,), int64
        Start of each set in `members`.
    mass : ndarray, shape (m,)
        Probability that the set of distinct drafted tokens is set j; all positive.

    Examples
    --------
    >>> import otlp
    >>> sets = otlp.IID([0.6, 0.4], n=2).enumerate_sets()
    >>> sets.members.tolist(), sets.offsets.tolist()       # {0}, {0, 1}, {1}
    ([0, 1, 0, 1], [0, 1, 2, 4])
    >>> sets.mass.round(6).tolist()
    [0.36, 0.16, 0.48]
    """

    members: IntArray
    offsets: IntArray
    mass: FloatArray

    def __len__(self) -> int:
        """Return the number of sets m."""
        return self.mass.size

    @cached_property
    def rows(self) -> IntArray:
        """Set index of every member, shape (nnz,)."""
        return np.repeat(np.arange(self.mass.size), np.diff(self.offsets))

    @cached_property
    def _positions(self) -> dict[bytes, int]:
        ends = self.offsets.tolist()
        data, width = self.members.tobytes(), self.members.itemsize
        return {data[width * a : width * b]: j for j, (a, b) in enumerate(pairwise(ends))}

    def find(self, draft_tokens: IntArray) -> int:
        """Return the index of the set of distinct tokens of a tuple, or -1 if not listed.

        The first call builds a hash table in O(nnz); later calls cost O(n log n).
        """
        key = np.unique(draft_tokens).astype(self.members.dtype, copy=False).tobytes()
        return self._positions.get(key, -1)

    def first_in(self, order: IntArray) -> FloatArray:
        """Return the mass of the sets whose first token in `order` is i, shape (V,); O(V + nnz)."""
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.arange(order.size)
        return _first_in(self.members, self.offsets, self.mass, rank)


def merge_by_set(tuples: DraftTuples) -> TokenSets:
    """Merge tuples by their set of distinct tokens; O(m n log m).

    The sets are ordered by size, then lexicographically.
    """
    ordered = np.sort(tuples.tokens, axis=1)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    # In the canonical form of a set, repeated tokens become -1 and move to the front, so that
    # shorter sets sort first.
    ordered[repeated] = -1
    ordered.sort(axis=1)
    canonical, index = np.unique(ordered, axis=0, return_inverse=True)
    mass = sum_by(index.reshape(-1), tuples.mass, len(canonical))
    present = canonical >= 0
    offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)
    return TokenSets(canonical[present].astype(np.int64), offsets, mass)


def as_float(count: int) -> float:
    """Convert a count to a float; infinity if it is too large."""
    try:
        return float(count)
    except OverflowError:
        return inf


@lru_cache(maxsize=256)
def set_count(tokens: int, n: int) -> tuple[float, float]:
    """Return the number of sets of 1 to n of `tokens` tokens, and of their members.

    Both are infinite if the sets cannot be listed.
    """
    if n > MOST_DRAFTS:
        return inf, inf
    sets, members, size = 0, 0, 1
    for m in range(1, min(n, tokens) + 1):
        size = size * (tokens - m + 1) // m
        sets, members = sets + size, members + m * size
        if size > TOO_MANY:
            return inf, inf
    return float(sets), float(members)  # within the range of floats, as `TOO_MANY` is far below


def list_sets(
    draft: FloatArray, n: int, ignored: float = 0.0, memory_limit: int = MEMORY_LIMIT
) -> TokenSets:
    """List all sets of 1 to n tokens with the mass of the n-tuples that draft exactly this set.

    Parameters
    ----------
    draft : ndarray, shape (k,)
        Probabilities of the k tokens; need not sum to one.
    n : int
        Number of drafts.
    ignored : float
        Probability of further tokens, which a tuple may contain in addition to the set.
    memory_limit : int
        Maximum size of the list, in bytes.

    Returns
    -------
    TokenSets
        Ordered by size, then lexicographically; sets whose mass underflows are omitted.

    Raises
    ------
    SizeLimitError
        If the list would need more than `memory_limit` bytes, or n is above 1,000.

    Notes
    -----
    Set S has mass n! [x^n] exp(ignored x) prod_{i in S} (exp(q_i x) - 1), in positive terms only.
    O(n^2) per set.
    """
    if n > MOST_DRAFTS:
        raise SizeLimitError(
            f"n must be at most {MOST_DRAFTS} to list token sets, because binomials overflow, "
            f"got {n}; use martingale, which lists no sets"
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


@compiled
def _first_in(members: IntArray, offsets: IntArray, mass: FloatArray, rank: IntArray) -> FloatArray:
    result = np.zeros(rank.size)
    for j in range(mass.size):
        first = members[offsets[j]]
        for at in range(offsets[j] + 1, offsets[j + 1]):
            if rank[members[at]] < rank[first]:
                first = members[at]
        result[first] += mass[j]
    return result


@compiled
def pascal(n: int) -> FloatArray:
    """Return the binomial coefficients, shape (n + 1, n + 1)."""
    rows = np.zeros((n + 1, n + 1))
    for d in range(n + 1):
        rows[d, 0] = 1.0
        for e in range(1, d + 1):
            rows[d, e] = rows[d - 1, e - 1] + rows[d - 1, e]
    return rows


@compiled
def powers_of(draft: FloatArray, n: int) -> FloatArray:
    """Return the series of exp(q_j x) up to x^n, one per row, as d! times the coefficient of x^d.

    This entry is q_j^d.  With this scaling, series neither overflow nor underflow, and products of
    series need binomials.
    """
    powers = np.ones((draft.size, n + 1))
    for j in range(draft.size):
        for d in range(1, n + 1):
            powers[j, d] = powers[j, d - 1] * draft[j]
    return powers


@compiled(inline="always")
def next_combination(chosen: IntArray, count: int, size: int) -> int:
    """Step to the next set of `count` numbers below `size`, in lexicographic order.

    Returns the first place that changed, or -1 after the last set.
    """
    place = count - 1
    while place >= 0 and chosen[place] == size - count + place:
        place -= 1
    if place >= 0:
        chosen[place] += 1
        for j in range(place + 1, count):
            chosen[j] = chosen[j - 1] + 1
    return place


@compiled
def _list_sets(
    draft: FloatArray, n: int, ignored: float, count: int, total: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """List all sets of 1 to n tokens, by size and then lexicographically, with their masses."""
    k = draft.size
    members = np.empty(total, np.int64)
    offsets, mass = np.empty(count + 1, np.int64), np.empty(count)
    offsets[0] = 0
    powers, binomial = powers_of(draft, n), pascal(n)
    row, at = 0, 0
    chosen = np.empty(n, np.int64)
    # series[m] is the product of exp(ignored x) and the series of the first m chosen tokens.
    series = np.empty((n + 1, n + 1))
    series[0, 0] = 1.0
    for d in range(1, n + 1):
        series[0, d] = series[0, d - 1] * ignored
    for m in range(1, min(n, k) + 1):
        for j in range(m):
            chosen[j] = j
        changed = 0  # first place whose prefix product must be recomputed
        while True:
            for j in range(changed, m - 1):
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
            changed = next_combination(chosen, m, k)
            if changed < 0:
                break
    return members, offsets, mass
