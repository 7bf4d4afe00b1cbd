"""What every draft scheme answers, and the two ways of listing what it can draft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.errors import InvalidInputError, SizeLimitError, TokenOutOfRangeError

__all__ = ["MEMORY_LIMIT", "DraftScheme", "DraftTuples", "TokenSets", "check_memory"]

MEMORY_LIMIT = 2 * 1024**3
"""Bytes that an enumeration may need before it is refused."""


@dataclass(frozen=True, eq=False)
class DraftTuples:
    """All tuples of positive probability, one a row.

    Attributes
    ----------
    tokens : ndarray, shape (m, n), int64
        The tuples; no row stands twice.
    mass : ndarray, shape (m,)
        Their probabilities, all positive.
    """

    tokens: IntArray
    mass: FloatArray


@dataclass(frozen=True, eq=False)
class TokenSets:
    """The tuples merged by their set of distinct tokens, in compressed rows.

    Attributes
    ----------
    members : ndarray, shape (nnz,), int64
        Distinct tokens of set j, ascending: ``members[offsets[j]:offsets[j + 1]]``.
    offsets : ndarray, shape (m + 1,), int64
        Where each set begins.
    mass : ndarray, shape (m,)
        Probability that the set of distinct drafted tokens is set j; all positive.
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
        """Index of the set of distinct tokens of a tuple, or -1 if it is not listed.

        The first call builds a hash table in O(nnz); later calls cost O(n log n).
        """
        key = np.unique(draft_tokens).astype(self.members.dtype, copy=False).tobytes()
        return self._positions.get(key, -1)

    @classmethod
    def from_tuples(cls, tuples: DraftTuples) -> TokenSets:
        """Merge tuples that have the same set of distinct tokens; O(m n log m)."""
        return merge_by_set(tuples)[0]


def merge_by_set(tuples: DraftTuples) -> tuple[TokenSets, IntArray]:
    """Merge tuples by their set of distinct tokens.

    Returns
    -------
    sets : TokenSets
        Ordered by size, then lexicographically.
    index : ndarray, shape (m,), int64
        The set of each tuple.
    """
    ordered = np.sort(tuples.tokens, axis=1)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    # A repeated token becomes -1 and moves to the front, so a set has one spelling, and shorter
    # sets sort first.
    ordered[repeated] = -1
    ordered.sort(axis=1)
    spelled, index = np.unique(ordered, axis=0, return_inverse=True)
    index = index.reshape(-1).astype(np.int64)
    mass = sum_by(index, tuples.mass, len(spelled))
    present = spelled >= 0
    offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)
    return TokenSets(spelled[present].astype(np.int64), offsets, mass), index


class DraftScheme(ABC):
    """The law of an n-tuple of drafted tokens over a vocabulary of V tokens."""

    def __repr__(self) -> str:
        """Name the scheme and its sizes."""
        return f"{type(self).__name__}(V={self.vocab_size}, n={self.n})"

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of drafted tokens, at least 1."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Vocabulary size V."""

    @property
    @abstractmethod
    def mean_draft(self) -> FloatArray:
        """Mean over the n places of the law of the token at that place, shape (V,)."""

    @property
    def support(self) -> Mask:
        """Tokens that can be drafted, a mask of shape (V,)."""
        mask: Mask = self.mean_draft > 0.0
        return mask

    @property
    @abstractmethod
    def inclusion(self) -> FloatArray:
        """Probability that token i is among the drafts, shape (V,)."""

    @abstractmethod
    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Law of the drafted token that stands first in a priority ordering.

        The laws of all orderings are the extreme points of the selections that are possible:
        y(S) <= P(some drafted token lies in S) for all S, and y(V) = 1.  Sums of positive terms
        only, so the running sums of the result are the masses that touch the prefixes of `order`.

        Parameters
        ----------
        order : ndarray, shape (V,), int64
            A permutation of the tokens, the preferred one first.

        Returns
        -------
        ndarray, shape (V,)
            By token, not by place in `order`.

        Raises
        ------
        InvalidInputError
            If `order` is not a permutation of the tokens.
        """

    @abstractmethod
    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Probability of drafted tuples.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (..., n)

        Returns
        -------
        ndarray, shape (...)
        """

    def possible(self, draft_tokens: IntArray) -> bool:
        """Whether a tuple, shape (n,), can be drafted, even if its probability underflows."""
        return bool(self.probability(draft_tokens) > 0.0)

    @abstractmethod
    def mass_within(self, subset: npt.ArrayLike) -> float:
        """Probability that all drafted tokens lie in `subset`, a mask (V,) or token ids."""

    @abstractmethod
    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Probability that some drafted token lies in `subset`, a mask (V,) or token ids.

        This is ``1 - mass_within(~subset)`` without the cancellation.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int | None = None) -> IntArray:
        """Draw tuples: shape (n,), or (size, n) where `size` is given."""

    @abstractmethod
    def tuple_count(self) -> float:
        """Upper bound on the number of tuples of positive probability; O(V), lists nothing."""

    def repeat_probability(self) -> float:
        """Probability that a tuple holds a token twice; NaN where only a list would tell."""
        return float("nan")

    def set_count(self) -> tuple[float, float]:
        """Upper bounds on the number of token sets and of their members; lists nothing."""
        count = self.tuple_count()
        return count, count * self.n

    @abstractmethod
    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability.

        Raises
        ------
        SizeLimitError
            If the list would need more than `memory_limit` bytes.
        """

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the drafted tuples, merged by their set of distinct tokens.

        Raises
        ------
        SizeLimitError
            If the list would need more than `memory_limit` bytes.
        """
        return TokenSets.from_tuples(self.enumerate_tuples(memory_limit))

    @abstractmethod
    def top_k(self, k: int) -> DraftScheme:
        """Return the same scheme with each draft cut to its k most likely tokens."""

    @abstractmethod
    def restrict(self, tokens: IntArray, vocab_size: int) -> DraftScheme:
        """Return the same law with ``tokens[j]`` renamed to j, over `vocab_size` tokens.

        `tokens` must hold every token of the support; names from ``len(tokens)`` on are never
        drafted.
        """


def check_memory(what: str, needed: float, limit: int) -> None:
    """Refuse an enumeration that would need more bytes than `limit`.

    Raises
    ------
    SizeLimitError
        Naming the bytes needed, the limit, and what to do.
    """
    if needed > limit:
        raise SizeLimitError(
            f"{what} would need {needed / 1024**2:,.0f} MiB, more than the limit of "
            f"{limit / 1024**2:,.0f} MiB: use a smaller n, cut the draft with top_k, or choose "
            "a solver that does not enumerate (martingale for i.i.d. drafts)"
        )


def check_count(n: int) -> int:
    """Validate the number of drafts."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise InvalidInputError(f"n is {n!r}: the number of drafts must be a whole number >= 1")
    return int(n)


def check_order(order: npt.ArrayLike, vocab_size: int) -> IntArray:
    """Validate a permutation of the V tokens; O(V)."""
    given = np.asarray(order)
    valid = given.shape == (vocab_size,) and given.dtype.kind in "iu"
    if valid and 0 <= given.min() and given.max() < vocab_size:
        seen = np.zeros(vocab_size, dtype=bool)
        seen[given] = True
        if seen.all():
            return given.astype(np.int64, copy=False)
    raise InvalidInputError(f"order must be a permutation of the tokens 0 .. {vocab_size - 1}")


def check_mask(subset: npt.ArrayLike, vocab_size: int) -> Mask:
    """Turn a mask of shape (V,), or a list of token ids, into a mask of shape (V,)."""
    given = np.asarray(subset)
    if given.dtype == np.bool_ and given.shape == (vocab_size,):
        return given
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"subset has shape {given.shape} and type {given.dtype}: pass a mask of shape "
            f"({vocab_size},) or a list of token ids"
        )
    mask = np.zeros(vocab_size, dtype=bool)
    if given.size:
        if given.min() < 0 or given.max() >= vocab_size:
            raise TokenOutOfRangeError(
                f"a token id of the subset lies outside the vocabulary [0, {vocab_size})"
            )
        mask[given] = True
    return mask
