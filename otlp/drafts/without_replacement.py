"""n different tokens, drawn one after another from what is left of one draft distribution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import permutations
from math import comb, factorial, perm

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, frozen, renormalise_without
from otlp.drafts import checks
from otlp.drafts.one_draft import OneDraft
from otlp.drafts.token_sets import (
    MEMORY_LIMIT,
    DraftTuples,
    TokenSets,
    as_float,
    check_memory,
)
from otlp.numerics.compiled import compiled
from otlp.timing import checkpoint

__all__ = ["WithoutReplacement"]

SMALLEST = 1e-305
"""Smaller probabilities count as zero: the reciprocal of what is left must not overflow."""

WIDTH = 8
"""Nodes of the integral that are worked on together."""

STEPS = 20_000_000
"""Steps of a kernel between two looks at the time limit: some hundredths of a second."""


class WithoutReplacement(OneDraft):
    """n different tokens: each is drawn from q without the earlier ones, renormalised.

    The distribution is Plackett and Luce's.  Give each token an alarm clock that rings at an
    exponential time with rate q_i; then the first n to ring are the drafted tuple, in order.  So
    what the drafted set does is an integral over time of products over tokens.

    Parameters
    ----------
    draft : array_like, shape (V,)
        The draft distribution q; entries below 1e-305 count as zero.
    n : int
        Number of drafts, at least 1.

    Raises
    ------
    InvalidDistributionError
        If `draft` is not a probability vector.
    InvalidInputError
        If `n` is not a whole number of at least 1, or larger than the support of q.

    Notes
    -----
    For n <= 2 all masses are finite sums, exact up to rounding.  For n >= 3 they are integrals by
    the double-exponential rule with some 50 nodes for n = 3, a multiple of sqrt(n) for more, and
    more yet where fewer than n tokens hold nearly all mass; their error is below 1e-13.  Then the
    first call costs O(V) exponentials a node, and 8 bytes a token and node are kept.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2)
    >>> float(drafts.probability([0, 1]))
    0.3
    """

    def _enough(self, draft: FloatArray) -> FloatArray:
        return super()._enough(frozen(np.where(draft < SMALLEST, 0.0, draft)))

    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Distribution q without the tokens drawn, renormalised; O(V)."""
        return renormalise_without(self.draft, checks.check_drawn(drawn, self.n, self.vocab_size))

    @cached_property
    def inclusion(self) -> FloatArray:
        """Probability that token i is among the drafts; shape (V,).  O(V), O(n^2 V) a node."""
        if self.n == 1:
            return self.draft
        if self.n == 2:
            odds = self._odds
            return frozen(odds * _sum_of_others(self.draft) + self.draft * _sum_of_others(odds))
        result = np.zeros(self.vocab_size)
        for first, last in self._pieces():
            _add_inclusion(self.draft, self._rung, *self._nodes, self.n, first, last, result)
        return frozen(np.minimum(result, 1.0))

    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Distribution of the first draft in `order`; O(V) for n <= 2, then O(nV) a node."""
        order = checks.check_order(order, self.vocab_size)
        if self.n == 1:
            return self.draft.copy()
        if self.n == 2:
            return _pair_marginals(self.draft, self._odds, order)
        result = np.zeros(self.vocab_size)
        for first, last in self._pieces():
            _add_marginals(
                self.draft, self._rung, self._nodes[1], self.n, order, first, last, result
            )
        return result

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Blocks of nodes that are worked on without a look at the time limit, or at Ctrl-C."""
        count = len(self._rung)
        size = max(1, STEPS // (self.n * self.vocab_size * WIDTH))
        for first in range(0, count, size):
            checkpoint()
            yield first, min(first + size, count)

    def _outside(self, tokens: IntArray) -> FloatArray:
        """Mass of all tokens but the given different ones, without cancellation.

        Parameters
        ----------
        tokens : ndarray, shape (..., m)
            At most n tokens.

        Returns
        -------
        ndarray, shape (...)
        """
        top, tail = self.top_and_tail
        # The n most likely tokens are added one by one; the others are few parts of their sum.
        among = np.isin(tokens, top)
        left = np.maximum(tail - np.where(among, 0.0, self.draft[tokens]).sum(axis=-1), 0.0)
        for token in top:
            left = left + np.where((tokens == token).any(axis=-1), 0.0, self.draft[token])
        result: FloatArray = left
        return result

    def probability(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Probability of drafted tuples, shape (..., n) -> (...)."""
        tokens = checks.check_tuples(draft_tokens, self.n, self.vocab_size)
        result = np.ones(tokens.shape[:-1])
        for place in range(self.n):
            fresh = ~(tokens[..., :place] == tokens[..., place, None]).any(axis=-1)
            mass = np.where(fresh, self.draft[tokens[..., place]], 0.0)
            if place:
                left = np.where(fresh, self._outside(tokens[..., :place]), 1.0)
                mass = np.divide(mass, left, out=np.zeros_like(mass), where=mass > 0.0)
            result = result * mass
        return result

    def possible(self, draft_tokens: npt.ArrayLike) -> bool:
        """Whether every token can be drafted, and none stands twice."""
        tokens = checks.check_tokens(draft_tokens, self.n, self.vocab_size)
        return len(set(tokens.tolist())) == self.n and bool((self.draft[tokens] > 0.0).all())

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Probability that some draft lies in S; the cost of one `priority_marginals`."""
        inside = checks.check_mask(subset, self.vocab_size)
        certain = np.count_nonzero(self.draft[~inside]) < self.n
        return 1.0 if certain else super().mass_touching(inside)

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # the n largest of log q_i + Gumbel noise; O(V) a tuple
        tokens = np.flatnonzero(self.draft).astype(np.int64)
        logs = np.log(self.draft[tokens])
        rows = [tokens[_largest(logs + rng.gumbel(size=tokens.size), self.n)] for _ in range(size)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.n)

    def tuple_count(self) -> float:
        """Count k! / (k - n)! for a support of k tokens."""
        return as_float(perm(int(np.count_nonzero(self.draft)), self.n))

    def set_count(self) -> tuple[float, float]:
        """Number of sets of n of the k tokens, and of their members."""
        count = as_float(comb(int(np.count_nonzero(self.draft)), self.n))
        return count, count * self.n

    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability."""
        count = self.tuple_count()
        check_memory(f"listing {count:,.0f} tuples", 8.0 * count * (3 * self.n + 4), memory_limit)
        sets = self._combinations()
        orders = np.array(list(permutations(range(self.n))))
        listed = sets[:, orders].reshape(len(sets) * factorial(self.n), self.n)
        return DraftTuples.positive(listed, self.probability(listed))

    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the sets of n tokens with their masses, without listing the tuples.

        The mass of a set is a sum over its last-drawn tokens of the masses of smaller sets: 2^n
        positive terms in place of n! tuples.
        """
        count, total = self.set_count()
        needed = 8.0 * (2 * total + 2 * count) + 16.0 * 2.0 ** min(self.n, 1_000)
        check_memory(f"listing the {count:,.0f} sets of {self.n} tokens", needed, memory_limit)
        sets = self._combinations()
        mass = _set_masses(self.draft, sets, self._outside(sets))
        sets, mass = sets[mass > 0.0], mass[mass > 0.0]
        offsets = self.n * np.arange(len(sets) + 1, dtype=np.int64)
        return TokenSets(sets.reshape(-1), offsets, mass)

    def _combinations(self) -> IntArray:
        tokens = np.flatnonzero(self.draft).astype(np.int64)
        listed: IntArray = tokens[_combinations(tokens.size, self.n)]
        return listed

    @cached_property
    def top_and_tail(self) -> tuple[IntArray, float]:
        """The n most likely tokens, and the mass of all others."""
        top = _largest(self.draft, self.n)
        others = np.ones(self.vocab_size, dtype=bool)
        others[top] = False
        return top.astype(np.int64), float(self.draft[others].sum())

    @cached_property
    def _odds(self) -> FloatArray:
        """Odds q / (1 - q), where 1 - q of the most likely token is the sum of the others."""
        left = 1.0 - self.draft
        top = int(np.argmax(self.draft))
        left[top] = self.draft[:top].sum() + self.draft[top + 1 :].sum()
        return self.draft / left

    @cached_property
    def _nodes(self) -> tuple[FloatArray, FloatArray]:
        """Times and weights of the integral over [0, inf), a multiple of `WIDTH` of them."""
        top, tail = self.top_and_tail
        # Until n clocks have rung, what is left rings at this rate at least.
        slowest = tail + float(self.draft[top[-1]])
        # The trapezoidal rule in x, where t = exp(x - exp(-x)).  The n-th ring is the sharper in
        # log time the larger n is, about as 1 / sqrt(n).
        step, first = min(0.2, 0.5 / np.sqrt(self.n)), -3.5
        length = np.log((80.0 + 5.0 * self.n) / slowest) - first
        x = first + step * np.arange(WIDTH * int(np.ceil(length / (step * WIDTH))))
        times = np.exp(x - np.exp(-x))
        return times, step * times * (1.0 + np.exp(-x))

    @cached_property
    def _rung(self) -> FloatArray:
        """Probability that clock i has rung by each node, shape (nodes / WIDTH, V, WIDTH)."""
        times, _ = self._nodes
        needed = 8.0 * times.size * self.vocab_size
        check_memory("the integral over the clocks", needed, MEMORY_LIMIT)
        rung = np.empty((times.size // WIDTH, self.vocab_size, WIDTH))
        for block, rows in zip(times.reshape(-1, WIDTH), rung, strict=True):
            checkpoint()
            np.multiply(self.draft[:, None], -block, out=rows)
            np.negative(np.expm1(rows, out=rows), out=rows)
        return rung


def _largest(values: FloatArray, n: int) -> npt.NDArray[np.intp]:
    """Places of the n largest values, the largest first."""
    if n < values.size:
        places = np.argpartition(values, values.size - n)[values.size - n :]
    else:
        places = np.arange(values.size)
    return places[np.argsort(-values[places], kind="stable")]


def _sum_of_others(values: FloatArray) -> FloatArray:
    """Sum of all values but each, without the difference."""
    before, after = np.zeros((2, values.size))
    np.cumsum(values[:-1], out=before[1:])
    np.cumsum(values[:0:-1], out=after[-2::-1])
    return before + after


@compiled
def _pair_marginals(draft: FloatArray, odds: FloatArray, order: IntArray) -> FloatArray:
    # P({i, j}) = odds_i q_j + odds_j q_i
    result = np.empty(draft.size)
    below, odds_below = 0.0, 0.0
    for place in range(order.size - 1, -1, -1):
        token = order[place]
        result[token] = odds[token] * below + draft[token] * odds_below
        below += draft[token]
        odds_below += odds[token]
    return result


@compiled
def _add_marginals(
    draft: FloatArray,
    rung: FloatArray,
    weights: FloatArray,
    n: int,
    order: IntArray,
    first: int,
    last: int,
    result: FloatArray,
) -> None:
    """Integrate, for each token, over the time when the n-th clock rings.

    None above has rung; either the token rings as the n-th, after n - 1 from below, or it has
    rung and the (n-1)-th from below rings.
    """
    size = draft.size
    # Copies in order, so that the passes below read memory from end to end.
    own = draft[order]
    ordered = np.empty((size, WIDTH))
    silent = np.empty((size, WIDTH))  # no clock above has rung
    for block in range(first, last):
        product = weights[block * WIDTH : (block + 1) * WIDTH].copy()
        for place in range(size):
            clock = rung[block, order[place]]
            for k in range(WIDTH):
                ordered[place, k] = clock[k]
                silent[place, k] = product[k]
                product[k] *= 1.0 - clock[k]
        count = np.zeros((n, WIDTH))  # [m]: exactly m clocks below have rung
        rate = np.zeros((n - 1, WIDTH))  # [m]: the (m+1)-th clock below rings
        count[0] = 1.0
        for place in range(size - 1, -1, -1):
            value = 0.0
            for k in range(WIDTH):
                yes, no = ordered[place, k], 1.0 - ordered[place, k]
                ringing = own[place] * no
                value += silent[place, k] * (ringing * count[n - 1, k] + yes * rate[n - 2, k])
                for m in range(n - 2, 0, -1):
                    rate[m, k] = no * rate[m, k] + yes * rate[m - 1, k] + ringing * count[m, k]
                    count[m + 1, k] = no * count[m + 1, k] + yes * count[m, k]
                rate[0, k] = no * rate[0, k] + ringing * count[0, k]
                count[1, k] = no * count[1, k] + yes * count[0, k]
                count[0, k] *= no
            result[order[place]] += value


@compiled
def _add_inclusion(
    draft: FloatArray,
    rung: FloatArray,
    times: FloatArray,
    weights: FloatArray,
    n: int,
    first: int,
    last: int,
    result: FloatArray,
) -> None:
    """Integrate over the time when clock i rings, with fewer than n others before it."""
    size = draft.size
    before = np.empty((size, n, WIDTH))  # [i, m]: exactly m of the clocks 0 .. i - 1 have rung
    for block in range(first, last):
        count = np.zeros((n, WIDTH))
        count[0] = 1.0
        for token in range(size):
            before[token] = count
            _add_clock(count, rung[block, token])
        count[:] = 0.0
        count[0] = 1.0
        for token in range(size - 1, -1, -1):
            own, value = draft[token], 0.0
            for k in range(WIDTH):
                fewer, at_most = 0.0, 0.0
                for m in range(n):
                    at_most += count[m, k]
                    fewer += before[token, n - 1 - m, k] * at_most
                node = block * WIDTH + k
                value += weights[node] * fewer * np.exp(-own * times[node])
            result[token] += own * value
            _add_clock(count, rung[block, token])


@compiled
def _add_clock(count: FloatArray, yes: FloatArray) -> None:
    for k in range(WIDTH):
        for m in range(count.shape[0] - 1, 0, -1):
            count[m, k] = (1.0 - yes[k]) * count[m, k] + yes[k] * count[m - 1, k]
        count[0, k] *= 1.0 - yes[k]


@compiled
def _combinations(size: int, n: int) -> IntArray:
    """All sets of n of the numbers 0 .. size - 1, in lexicographic order."""
    count = 1
    for j in range(n):
        count = count * (size - j) // (j + 1)
    result = np.empty((count, n), np.int64)
    chosen = np.arange(n)
    for row in range(count):
        result[row] = chosen
        place = n - 1
        while place >= 0 and chosen[place] == size - n + place:
            place -= 1
        if place >= 0:
            chosen[place] += 1
            for j in range(place + 1, n):
                chosen[j] = chosen[j - 1] + 1
    return result


@compiled
def _set_masses(draft: FloatArray, sets: IntArray, outside: FloatArray) -> FloatArray:
    n = sets.shape[1]
    result = np.empty(len(sets))
    mass = np.zeros(1 << n)  # by subset of the set: it is what has been drawn so far
    for row in range(len(sets)):
        mass[:] = 0.0
        mass[0] = 1.0
        for drawn in range((1 << n) - 1):
            left = outside[row]
            for j in range(n):
                if not drawn >> j & 1:
                    left += draft[sets[row, j]]
            for j in range(n):
                if not drawn >> j & 1:
                    mass[drawn | 1 << j] += mass[drawn] * (draft[sets[row, j]] / left)
        result[row] = mass[-1]
    return result
