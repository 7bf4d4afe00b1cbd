"""Base class of draft schemes; everything follows from the distribution of the next draft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import MEMORY_LIMIT, check_memory, own_float_errors
from otlp.distribution import (
    ByValue,
    FloatArray,
    IntArray,
    Mask,
    as_distribution,
    frozen,
    invert_cdf,
    sum_by,
)
from otlp.drafts.token_sets import DraftTuples, TokenSets, merge_by_set
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.numerics.equal_rows import equal_rows


class DraftScheme(ByValue, ABC):
    """The distribution of an n-tuple of drafted tokens over a vocabulary of V tokens.

    A user-defined scheme implements `n`, `vocab_size` and `next_distribution`.  All other methods
    follow: samples and probabilities in O(nV) per tuple, and sums over tuples from the list of all
    tuples, made once, within `MEMORY_LIMIT`.  Override methods that have a closed form; if a method
    `name` calls `_name`, override `_name`, whose tuples are already checked.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> class Twice(otlp.DraftScheme):         # draw one token and draft it twice
    ...     n, vocab_size = 2, 3
    ...     def next_distribution(self, drawn):
    ...         return np.eye(3)[drawn[0]] if len(drawn) else np.array([0.5, 0.3, 0.2])
    >>> Twice().probability([[0, 0], [0, 1]]).tolist()
    [0.5, 0.0]
    >>> round(otlp.solve(otlp.Problem([0.1, 0.6, 0.3], Twice())).acceptance, 6)
    0.6
    """

    def __str__(self) -> str:
        """Return the scheme without its vocabulary, which may contain a token for all others."""
        return f"{type(self).__name__}(n={self.n})"

    def __repr__(self) -> str:
        """Return the name and sizes of the scheme."""
        return f"{type(self).__name__}(vocabulary {self.vocab_size:,}, n={self.n})"

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of drafted tokens, at least 1."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Vocabulary size V."""

    @abstractmethod
    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Return the distribution of the next draft, given the earlier drafts.

        Parameters
        ----------
        drawn : array_like of int, shape (m,), m < n
            The drafts so far, which must be possible; empty for the first draft.

        Returns
        -------
        ndarray, shape (V,), or None
            None, or zeros, if no token is left to draft.
        """

    @property
    def independent_drafts(self) -> FloatArray | None:
        """Distributions q_1, ..., q_n, shape (n, V), if the drafts are independent, else None."""
        return None

    def best_subset(self, target: FloatArray) -> Mask | None:
        """Return the subset H* of the best dual bound, shape (V,), if known in closed form.

        Otherwise return None; `otlp.reductions.subset_selection` then searches for H*.
        """
        return None

    @cached_property
    @own_float_errors
    def mean_draft(self) -> FloatArray:
        """Mean over the n places of the distribution of the token at that place, shape (V,)."""
        weights = np.repeat(self._tuples.mass / self.n, self.n)
        return frozen(sum_by(self._tuples.tokens.ravel(), weights, self.vocab_size))

    @property
    def support(self) -> Mask:
        """Tokens that can be drafted, a mask of shape (V,)."""
        return self.mean_draft > 0.0

    @cached_property
    def inclusion(self) -> FloatArray:
        """Probability that token i is among the drafts, shape (V,)."""
        sets = self._sets
        return frozen(sum_by(sets.members, sets.mass[sets.rows], self.vocab_size))

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Return the distribution of the drafted token that is first in a priority ordering.

        These distributions are the extreme points of the possible selections y:
        y(S) <= P(some drafted token lies in S) for all S, and y(V) = 1.  They are computed from
        positive terms only, so the running sums of the result are accurate masses that touch the
        prefixes of `order`.

        Parameters
        ----------
        order : ndarray, shape (V,), int64
            A permutation of the tokens, the preferred token first.

        Returns
        -------
        ndarray, shape (V,)
            Indexed by token, not by place in `order`.

        Raises
        ------
        InvalidInputError
            If `order` is not a permutation of the tokens.
        """
        return self._sets.first_in(checks.check_order(order, self.vocab_size))

    @own_float_errors
    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the probability of drafted tuples.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (..., n)

        Returns
        -------
        ndarray, shape (...)

        Raises
        ------
        InvalidInputError
            If the last axis does not have length n, or the entries are not integers.
        TokenOutOfRangeError
            If an id is outside [0, V).
        """
        tokens = checks.check_tuples(draft_tokens, self.n, self.vocab_size)
        return self._probability(tokens.reshape(-1, self.n)).reshape(tokens.shape[:-1])

    def _probability(self, rows: IntArray) -> FloatArray:
        """Return the probability of valid tuples, shape (m, n) -> (m,)."""
        mass = np.ones(len(rows))
        for place in range(self.n):
            for prefix, among in _by_prefix(rows[:, :place], np.flatnonzero(mass)):
                mass[among] *= self._next(prefix)[rows[among, place]]
        return mass

    def possible(self, draft_tokens: npt.ArrayLike) -> bool:
        """Return whether a tuple (n,) can be drafted, even if its probability underflows."""
        return self._possible(checks.check_tokens(draft_tokens, self.n, self.vocab_size))

    def _possible(self, tokens: IntArray) -> bool:
        """Return whether a valid tuple can be drafted."""
        return all(self._next(tokens[:place])[token] > 0.0 for place, token in enumerate(tokens))

    def _possible_each(self, rows: IntArray) -> Mask:
        """Return whether valid tuples can be drafted, (m, n) -> (m,); checks each tuple once."""
        result = np.empty(len(rows), dtype=bool)
        for row, places in equal_rows(rows):
            result[places] = self._possible(row)
        return result

    def mass_within(self, subset: npt.ArrayLike) -> float:
        """Return the probability that all drafted tokens are in `subset`, a mask (V,) or token ids.

        The cost is that of one call of `priority_marginals`.
        """
        return self._best_in(checks.check_mask(subset, self.vocab_size), above=False)

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Return the probability that some drafted token is in `subset`, a mask (V,) or token ids.

        This is ``1 - mass_within(~subset)`` without cancellation.
        """
        return self._best_in(checks.check_mask(subset, self.vocab_size), above=True)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> IntArray:
        """Draw one tuple, shape (n,), or `size` tuples, shape (size, n)."""
        drawn = self._draw(rng, checks.check_size(rng, size, self.n))
        return drawn[0] if size is None else drawn

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw tuples, shape (size, n), by inversion, place by place."""
        uniform = rng.random((size, self.n))
        drawn = np.zeros((size, self.n), dtype=np.int64)
        for place in range(self.n):
            for prefix, among in _by_prefix(drawn[:, :place], np.arange(size)):
                cumulative = np.cumsum(self._next(prefix))
                drawn[among, place] = invert_cdf(cumulative, uniform[among, place])
        return drawn

    def tuple_count(self) -> float:
        """Return an upper bound on the number of possible tuples, without listing them; O(V)."""
        first = np.count_nonzero(self._next(np.empty(0, dtype=np.int64)))
        with np.errstate(over="ignore"):
            return float(first * np.float64(self.vocab_size) ** (self.n - 1))

    def prefix_count(self) -> float:
        """Return an upper bound on the number of possible sequences of the first n - 1 tokens."""
        return 1.0 if self.n == 1 else self.tuple_count()

    def repeat_probability(self) -> float:
        """Return the probability that a tuple contains a token twice; NaN if a list is required."""
        return float("nan")

    def set_count(self) -> tuple[float, float]:
        """Return upper bounds on the number of token sets and of their members, without listing."""
        count = self.tuple_count()
        return count, count * self.n

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability.

        Raises
        ------
        SizeLimitError
            If the list would need more than `memory_limit` bytes.
        """
        tokens, mass = np.empty((1, 0), dtype=np.int64), np.ones(1)
        for place in range(self.n):
            longer, masses, count = [], [], 0
            for row, weight in zip(tokens, mass, strict=True):
                reached = weight * self._next(row)
                found = np.flatnonzero(reached)  # a product of tiny probabilities can underflow
                count += found.size
                check_memory(f"listing the tuples of {self!r}", 24.0 * count * self.n, memory_limit)
                head = np.broadcast_to(row, (found.size, place))
                longer.append(np.column_stack((head, found)).astype(np.int64))
                masses.append(reached[found])
            tokens, mass = np.concatenate(longer), np.concatenate(masses)
        return DraftTuples(tokens, mass)

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the drafted tuples, merged by their set of distinct tokens.

        Raises
        ------
        SizeLimitError
            If the list would need more than `memory_limit` bytes.
        """
        return merge_by_set(self.enumerate_tuples(memory_limit))

    def top_k(self, k: int) -> DraftScheme:
        """Return the same scheme with each draft cut to its k most likely tokens.

        Raises
        ------
        UnsupportedProblemError
            If the scheme does not implement `top_k`.
        """
        raise UnsupportedProblemError(
            f"{self!r} does not implement top_k: cut the draft distributions it is built from"
        )

    def restrict(self, tokens: npt.ArrayLike, vocab_size: int) -> DraftScheme:
        """Return the same scheme with ``tokens[j]`` renamed to j, over `vocab_size` tokens.

        `tokens` must contain every token of the support; names from ``len(tokens)`` on are never
        drafted.

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError
            If `tokens` are not distinct token ids that contain the support, or more than
            `vocab_size`.
        """
        return self._renamed(checks.check_names(tokens, self.support, vocab_size), vocab_size)

    def _renamed(self, tokens: IntArray, vocab_size: int) -> DraftScheme:
        return Renamed(self, tokens, vocab_size)

    @cached_property
    def _independent(self) -> FloatArray | None:
        """`independent_drafts`, after checks for user-defined schemes."""
        given = self.independent_drafts
        if given is None:
            return None
        drafts = [as_distribution(q, f"independent draft {j}") for j, q in enumerate(given)]
        sizes = [draft.size for draft in drafts]
        if sizes != [self.vocab_size] * self.n:
            raise InvalidInputError(
                f"independent_drafts of {self!r} must have shape ({self.n}, {self.vocab_size}), "
                f"got rows of {sizes} tokens"
            )
        return frozen(np.stack(drafts))

    @cached_property
    def _tuples(self) -> DraftTuples:
        return self.enumerate_tuples()

    @cached_property
    def _sets(self) -> TokenSets:
        return merge_by_set(self._tuples)

    def _best_in(self, inside: Mask, above: bool) -> float:
        """Return the probability of a best draft in S if S is ranked above, or below, the rest."""
        order = np.argsort(~inside if above else inside, kind="stable")
        return min(1.0, float(self.priority_marginals(order)[inside].sum()))

    def _next(self, drawn: IntArray) -> FloatArray:
        """Return the distribution of the next draft, after checks for user-defined schemes."""
        found = self.next_distribution(drawn)
        if found is None or not np.any(found):
            raise InvalidInputError(
                f"{self!r} must draft n = {self.n}, but has no token left after {drawn.tolist()}"
            )
        checked = as_distribution(found, f"the distribution of the draft after {drawn.tolist()}")
        if checked.size != self.vocab_size:
            raise InvalidInputError(
                f"the distribution of the draft after {drawn.tolist()} must have V = "
                f"{self.vocab_size} tokens, got {checked.size}: see next_distribution of {self!r}"
            )
        return checked


class SizedScheme(DraftScheme):
    """Base class of schemes whose sizes are attributes, which the constructor sets."""

    n: int = 0
    """Number of drafted tokens."""
    vocab_size: int = 0
    """Vocabulary size V."""


class Renamed(SizedScheme):
    """A scheme whose token ``tokens[j]`` is renamed to j; see `DraftScheme.restrict`."""

    def __init__(self, scheme: DraftScheme, tokens: IntArray, vocab_size: int) -> None:
        self.scheme, self.tokens = scheme, tokens
        self.n, self.vocab_size = scheme.n, vocab_size

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray:
        """Return the distribution of the next draft; see `DraftScheme.next_distribution`."""
        names = checks.check_drawn(drawn, self.n, self.tokens.size)
        return rename(self.scheme._next(self.tokens[names]), self.tokens, self.vocab_size)

    @property
    def independent_drafts(self) -> FloatArray | None:
        """Distributions of the drafts over the names, shape (n, V), or None; see `DraftScheme`."""
        drafts = self.scheme._independent
        if drafts is None:
            return None
        return np.stack([rename(draft, self.tokens, self.vocab_size) for draft in drafts])


def rename(distribution: FloatArray, tokens: IntArray, vocab_size: int) -> FloatArray:
    """Return the distribution over the names of the tokens; see `DraftScheme.restrict`."""
    renamed = np.zeros(vocab_size)
    renamed[: tokens.size] = distribution[tokens]
    return renamed


def _by_prefix(prefixes: IntArray, rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield each distinct prefix of the selected rows, and the indices of its rows."""
    for prefix, places in equal_rows(prefixes[rows]):
        yield prefix, rows[places]
