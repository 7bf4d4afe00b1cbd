"""Any law of n drafted tokens, given as a list of tuples and their probabilities."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from numba import njit

from otlp.distribution import FloatArray, IntArray, Mask, as_distribution, invert_cdf, sum_by
from otlp.drafts.scheme import (
    MEMORY_LIMIT,
    DraftScheme,
    DraftTuples,
    TokenSets,
    check_mask,
    check_memory,
    check_order,
)
from otlp.errors import InvalidDistributionError, InvalidInputError, TokenOutOfRangeError

__all__ = ["Explicit"]


class Explicit(DraftScheme):
    """A draft law listed tuple by tuple; the order of tokens within a tuple matters.

    Parameters
    ----------
    tuples : array_like of int, shape (m, n)
        The tuples that can be drafted.  Rows that stand twice are added up; rows of probability
        zero are dropped.
    probabilities : array_like, shape (m,)
        Their probabilities.
    vocab_size : int, optional
        Vocabulary size V; by default one more than the largest token id.

    Raises
    ------
    InvalidInputError
        If the shapes do not agree, or the tokens are not integers.
    TokenOutOfRangeError
        If a token id lies outside [0, V).
    InvalidDistributionError
        If the probabilities are not a probability vector.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Explicit([[0, 1], [0, 2]], [0.6, 0.4])
    >>> drafts.mass_within([0, 1])
    0.6
    """

    def __init__(
        self,
        tuples: npt.ArrayLike,
        probabilities: npt.ArrayLike,
        vocab_size: int | None = None,
    ) -> None:
        tokens = np.asarray(tuples)
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
            raise InvalidInputError(
                f"tuples has shape {tokens.shape} and type {tokens.dtype}: it must be an integer "
                "array of shape (m, n) with m, n >= 1"
            )
        mass = as_distribution(probabilities, "probabilities")
        if mass.size != len(tokens):
            raise InvalidDistributionError(
                f"there are {len(tokens)} tuples and {mass.size} probabilities: one a tuple"
            )
        size = int(tokens.max()) + 1 if vocab_size is None else int(vocab_size)
        if tokens.min() < 0 or tokens.max() >= size:
            bad = tokens[(tokens < 0) | (tokens >= size)][0]
            raise TokenOutOfRangeError(f"token id {bad} lies outside the vocabulary [0, {size})")
        distinct, index = np.unique(
            tokens[mass > 0.0].astype(np.int64), axis=0, return_inverse=True
        )
        merged = sum_by(index.reshape(-1), mass[mass > 0.0], len(distinct))
        self._vocab_size = size
        self._tuples = DraftTuples(distinct, merged)
        distinct.flags.writeable = merged.flags.writeable = False

    def __repr__(self) -> str:
        """Name the scheme and its sizes."""
        return f"Explicit({len(self._tuples.mass)} tuples, V={self.vocab_size}, n={self.n})"

    @property
    def n(self) -> int:
        """Number of drafted tokens."""
        return int(self._tuples.tokens.shape[1])

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self._vocab_size

    @cached_property
    def mean_draft(self) -> FloatArray:
        """Mean over the places of the law of the token there, shape (V,)."""
        weights = np.repeat(self._tuples.mass / self.n, self.n)
        return sum_by(self._tuples.tokens.ravel(), weights, self.vocab_size)

    @cached_property
    def support(self) -> Mask:
        """Tokens of the listed tuples: a subnormal mass has no n-th part."""
        mask = np.zeros(self.vocab_size, dtype=bool)
        mask[self._tuples.tokens] = True
        return mask

    @cached_property
    def inclusion(self) -> FloatArray:
        """Mass of the tuples that have token i, shape (V,)."""
        sets = self._sets
        return sum_by(sets.members, sets.mass[sets.rows], self.vocab_size)

    @cached_property
    def _sets(self) -> TokenSets:
        return TokenSets.from_tuples(self._tuples)

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Mass of the tuples whose first token in `order` is i; O(m n) after merging once."""
        rank = np.empty(self.vocab_size, dtype=np.int64)
        rank[check_order(order, self.vocab_size)] = np.arange(self.vocab_size)
        return _priority_marginals(self._sets.members, self._sets.offsets, self._sets.mass, rank)

    @cached_property
    def _index(self) -> dict[bytes, float]:
        return {
            row.tobytes(): float(mass)
            for row, mass in zip(self._tuples.tokens, self._tuples.mass, strict=True)
        }

    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Probability of drafted tuples, shape (..., n) -> (...); O(n) each after O(m n) once."""
        tokens = np.ascontiguousarray(draft_tokens, dtype=np.int64)
        found = [self._index.get(row.tobytes(), 0.0) for row in tokens.reshape(-1, self.n)]
        return np.array(found).reshape(tokens.shape[:-1])

    def mass_within(self, subset: npt.ArrayLike) -> float:
        """Sum over the tuples whose tokens all lie in the subset; O(m n)."""
        inside = check_mask(subset, self.vocab_size)[self._tuples.tokens].all(axis=1)
        return float(self._tuples.mass[inside].sum())

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Sum over the tuples that have a token in the subset; O(m n)."""
        touching = check_mask(subset, self.vocab_size)[self._tuples.tokens].any(axis=1)
        return float(self._tuples.mass[touching].sum())

    def sample(self, rng: np.random.Generator, size: int | None = None) -> IntArray:
        """Draw tuples by inversion; O(m) a call."""
        cumulative = np.cumsum(self._tuples.mass)
        return self._tuples.tokens[invert_cdf(cumulative, rng.random(size))]

    def tuple_count(self) -> float:
        """Return the number of listed tuples."""
        return float(self._tuples.mass.size)

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List the tuples, as given."""
        needed = self._tuples.tokens.nbytes + self._tuples.mass.nbytes
        check_memory("listing the tuples", needed, memory_limit)
        return self._tuples

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the tuples, merged by their set of distinct tokens; merged once."""
        return self._sets

    def top_k(self, k: int) -> Explicit:
        """Keep the k most likely tuples and renormalise; ties go to the first in token order."""
        if k < 1:
            raise InvalidInputError(f"top-k size is {k}: it must be at least 1")
        order = np.argsort(-self._tuples.mass, kind="stable")[:k]
        mass = self._tuples.mass[order]
        return Explicit(self._tuples.tokens[order], mass / mass.sum(), self.vocab_size)

    def restrict(self, tokens: IntArray, vocab_size: int) -> Explicit:
        """Rename ``tokens[j]`` to j; see `DraftScheme.restrict`."""
        names = np.full(self.vocab_size, -1, dtype=np.int64)
        names[tokens] = np.arange(tokens.size)
        return Explicit(names[self._tuples.tokens], self._tuples.mass, vocab_size)


@njit(cache=True)
def _priority_marginals(
    members: IntArray, offsets: IntArray, mass: FloatArray, rank: IntArray
) -> FloatArray:
    result = np.zeros(rank.size)
    for j in range(mass.size):
        first = members[offsets[j]]
        for at in range(offsets[j] + 1, offsets[j + 1]):
            if rank[members[at]] < rank[first]:
                first = members[at]
        result[first] += mass[j]
    return result
