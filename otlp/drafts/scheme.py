"""What every draft scheme answers; all follows from the distribution of the next draft."""

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

    A scheme of your own says `n`, `vocab_size` and `next_distribution`.  All else follows: samples
    and probabilities in O(nV) a tuple, and what is a sum over tuples from the list of them all,
    made once, within `MEMORY_LIMIT`.  Override what is known in closed form; where a method `name`
    calls `_name`, override that, whose tuples are checked already.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> class Twice(otlp.DraftScheme):         # draw one token, and draft it twice
    ...     n, vocab_size = 2, 3
    ...     def next_distribution(self, drawn):
    ...         return np.eye(3)[drawn[0]] if len(drawn) else np.array([0.5, 0.3, 0.2])
    >>> Twice().probability([[0, 0], [0, 1]]).tolist()
    [0.5, 0.0]
    >>> round(otlp.solve(otlp.Problem([0.1, 0.6, 0.3], Twice())).acceptance, 6)
    0.6
    """

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

    @abstractmethod
    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Distribution of the next draft, given the earlier ones.

        Parameters
        ----------
        drawn : array_like of int, shape (m,), m < n
            The drafts so far, which must be possible; empty for the first.

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
        """The subset H* of the best dual bound, shape (V,), where it is known in closed form.

        None where it is not: then `otlp.reductions.subset_selection` searches for it.
        """
        return None

    @cached_property
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
        """Distribution of the drafted token that stands first in a priority ordering.

        Those of all orderings are the extreme points of the selections that are possible:
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
        return self._sets.first_in(checks.check_order(order, self.vocab_size))

    @own_float_errors
    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Probability of drafted tuples.

        Parameters
        ----------
        draft_tokens : array_like of int, shape (..., n)

        Returns
        -------
        ndarray, shape (...)

        Raises
        ------
        InvalidInputError
            If the last axis is not n, or the entries are not integers.
        TokenOutOfRangeError
            If an id lies outside [0, V).
        """
        tokens = checks.check_tuples(draft_tokens, self.n, self.vocab_size)
        return self._probability(tokens.reshape(-1, self.n)).reshape(tokens.shape[:-1])

    def _probability(self, rows: IntArray) -> FloatArray:
        """Probability of valid tuples, shape (m, n) -> (m,)."""
        mass = np.ones(len(rows))
        for place in range(self.n):
            for prefix, among in _by_prefix(rows[:, :place], np.flatnonzero(mass)):
                mass[among] *= self._next(prefix)[rows[among, place]]
        return mass

    def possible(self, draft_tokens: npt.ArrayLike) -> bool:
        """Whether a tuple, shape (n,), can be drafted, even if its probability underflows."""
        return self._possible(checks.check_tokens(draft_tokens, self.n, self.vocab_size))

    def _possible(self, tokens: IntArray) -> bool:
        """Whether a valid tuple can be drafted."""
        return all(self._next(tokens[:place])[token] > 0.0 for place, token in enumerate(tokens))

    def _possible_each(self, rows: IntArray) -> Mask:
        """Whether valid tuples can be drafted, (m, n) -> (m,): one look for each distinct one."""
        result = np.empty(len(rows), dtype=bool)
        for row, places in equal_rows(rows):
            result[places] = self._possible(row)
        return result

    def mass_within(self, subset: npt.ArrayLike) -> float:
        """Probability that all drafted tokens lie in `subset`, a mask (V,) or token ids.

        At the cost of one `priority_marginals`.
        """
        inside = checks.check_mask(subset, self.vocab_size)
        return self._selected(inside, np.argsort(inside, kind="stable"))

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Probability that some drafted token lies in `subset`, a mask (V,) or token ids.

        This is ``1 - mass_within(~subset)`` without the cancellation.
        """
        inside = checks.check_mask(subset, self.vocab_size)
        return self._selected(inside, np.argsort(~inside, kind="stable"))

    def sample(self, rng: np.random.Generator, size: int | None = None) -> IntArray:
        """Draw tuples: shape (n,), or (size, n) where `size` is given."""
        drawn = self._draw(rng, checks.check_size(rng, size, self.n))
        return drawn[0] if size is None else drawn

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw so many tuples, shape (size, n), by inversion, place by place."""
        uniform = rng.random((size, self.n))
        drawn = np.zeros((size, self.n), dtype=np.int64)
        for place in range(self.n):
            for prefix, among in _by_prefix(drawn[:, :place], np.arange(size)):
                cumulative = np.cumsum(self._next(prefix))
                drawn[among, place] = invert_cdf(cumulative, uniform[among, place])
        return drawn

    def tuple_count(self) -> float:
        """Upper bound on the number of tuples of positive probability; O(V), lists nothing."""
        first = np.count_nonzero(self._next(np.empty(0, dtype=np.int64)))
        with np.errstate(over="ignore"):
            return float(first * np.float64(self.vocab_size) ** (self.n - 1))

    def prefix_count(self) -> float:
        """Upper bound on the number of sequences that the first n - 1 tokens can be."""
        return 1.0 if self.n == 1 else self.tuple_count()

    def repeat_probability(self) -> float:
        """Probability that a tuple holds a token twice; NaN where only a list would tell."""
        return float("nan")

    def set_count(self) -> tuple[float, float]:
        """Upper bounds on the number of token sets and of their members; lists nothing."""
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
            If the scheme does not say what that is.
        """
        raise UnsupportedProblemError(
            f"{self!r} has no top_k of its own: cut the draft distributions that it is made of"
        )

    def restrict(self, tokens: npt.ArrayLike, vocab_size: int) -> DraftScheme:
        """Return the same scheme with ``tokens[j]`` renamed to j, over `vocab_size` tokens.

        `tokens` must hold every token of the support; names from ``len(tokens)`` on are never
        drafted.

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError
            If `tokens` are not as said, or more than `vocab_size`.
        """
        return self._renamed(checks.check_names(tokens, self.support, vocab_size), vocab_size)

    def _renamed(self, tokens: IntArray, vocab_size: int) -> DraftScheme:
        return Renamed(self, tokens, vocab_size)

    @cached_property
    def _tuples(self) -> DraftTuples:
        return self.enumerate_tuples()

    @cached_property
    def _sets(self) -> TokenSets:
        return merge_by_set(self._tuples)

    def _selected(self, subset: Mask, order: IntArray) -> float:
        """Probability that the drafted token that stands first in an ordering lies in a subset."""
        return min(1.0, float(self.priority_marginals(order)[subset].sum()))

    def _next(self, drawn: IntArray) -> FloatArray:
        """Distribution of the next draft, checked: a scheme of one's own may be wrong."""
        found = self.next_distribution(drawn)
        if found is None or not np.any(found):
            raise InvalidInputError(
                f"{self!r} has no token left after {drawn.tolist()}: n = {self.n} are to be drafted"
            )
        checked = as_distribution(found, f"the distribution of the draft after {drawn.tolist()}")
        if checked.size != self.vocab_size:
            raise InvalidInputError(
                f"the distribution of the draft after {drawn.tolist()} has {checked.size} tokens: "
                f"{self!r} must give V = {self.vocab_size}"
            )
        return checked


class Renamed(DraftScheme):
    """A scheme whose token ``tokens[j]`` is called j; see `DraftScheme.restrict`."""

    def __init__(self, scheme: DraftScheme, tokens: IntArray, vocab_size: int) -> None:
        self.scheme, self.tokens, self._vocab_size = scheme, tokens, vocab_size

    @property
    def n(self) -> int:
        """Number of drafted tokens."""
        return self.scheme.n

    @property
    def vocab_size(self) -> int:
        """Number of names."""
        return self._vocab_size

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Distribution of the next draft by name; see `DraftScheme.next_distribution`."""
        names = checks.check_drawn(drawn, self.n, self.tokens.size)
        found = self.scheme.next_distribution(self.tokens[names])
        if found is None:
            return None
        return rename(found, self.tokens, self.vocab_size)


def rename(distribution: FloatArray, tokens: IntArray, vocab_size: int) -> FloatArray:
    """Distribution over the names of the tokens; see `DraftScheme.restrict`."""
    renamed = np.zeros(vocab_size)
    renamed[: tokens.size] = distribution[tokens]
    return renamed


def _by_prefix(prefixes: IntArray, rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield each distinct prefix among some rows, and the rows that begin with it."""
    for prefix, places in equal_rows(prefixes[rows]):
        yield prefix, rows[places]
