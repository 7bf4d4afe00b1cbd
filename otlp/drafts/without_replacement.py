"""n different tokens, drawn one after another from what is left of one draft distribution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import permutations
from math import comb, factorial, perm

import numpy as np
import numpy.typing as npt

from otlp.distribution import (
    FloatArray,
    IntArray,
    Mask,
    frozen,
    invert_cdf,
    renormalise_without,
    sum_by,
)
from otlp.drafts import checks
from otlp.drafts.one_draft import OneDraft
from otlp.drafts.rank_law import Clocks
from otlp.drafts.token_sets import MEMORY_LIMIT, DraftTuples, TokenSets, as_float, check_memory
from otlp.numerics.compiled import compiled
from otlp.numerics.equal_rows import equal_rows
from otlp.timing import checkpoint

SMALLEST = 1e-305
"""Smaller probabilities count as zero: the reciprocal of what is left must not overflow."""

ATTEMPTS = 8
"""Draws of a token that may turn out to be one of the earlier ones."""

WIDTH = 16
"""Nodes of the integral that are worked on together: a few vectors of the processor."""

FIRST = (-3.5, -3.5, -3.0, -2.5, -2.1, -1.8)
"""First node of an integral over the n-th ring, and from n = 5 on: no n clocks ring before it."""

SMALL = 0.02
"""Up to here 1 - exp(-x) is a short series, which fills the vectors."""

REASSOCIATE = {"reassoc", "nnan", "nsz", "contract"}
"""Lets the compiler vectorise sums of positive terms; no NaN comes in."""

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

    def best_ranked(self, tokens: IntArray, shares: FloatArray) -> FloatArray:
        """Distribution of the drafted token of the best rank; see `rank_chances`."""
        chances = self.rank_chances(tokens, shares)
        return sum_by(np.asarray(tokens), np.asarray(shares) * chances, self.vocab_size)

    def rank_chances(self, tokens: IntArray, shares: FloatArray) -> FloatArray:
        """Probability of each rank to be the best drafted one, where its token has that rank.

        Every token draws its rank by itself; no two tokens share a rank.

        Parameters
        ----------
        tokens : ndarray, shape (M,)
            Whose rank each is, from the lowest to the best.
        shares : ndarray, shape (M,)
            How often the token has that rank; those of a token sum to one.

        Returns
        -------
        ndarray, shape (M,)
            O(n) for each rank and node of the integral, beside O(V) exponentials a node once.

        Raises
        ------
        InvalidInputError, TokenOutOfRangeError
            If these are no laws of ranks.
        """
        tokens, shares = checks.check_ranks(tokens, shares, self.support)
        if self.n == 1:
            return self.draft[tokens]
        return self._clocks.chances(self.n, tokens, shares)

    @cached_property
    def _clocks(self) -> Clocks:
        times, weights = self._nodes_from(FIRST[min(self.n, len(FIRST) - 1)])
        needed = 8.0 * times.size * self.vocab_size
        check_memory("the integral over the clocks", needed, MEMORY_LIMIT)
        return Clocks.at(self.draft, self.n, times, weights, self._width)

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Blocks of nodes that are worked on without a look at the time limit, or at Ctrl-C."""
        count = len(self._rung)
        size = max(1, STEPS // (self.n * self.vocab_size * self._width))
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

    def _probability(self, rows: IntArray) -> FloatArray:
        result = np.ones(len(rows))
        for place in range(self.n):
            fresh = ~(rows[:, :place] == rows[:, place, None]).any(axis=1)
            mass = np.where(fresh, self.draft[rows[:, place]], 0.0)
            if place:
                left = np.where(fresh, self._outside(rows[:, :place]), 1.0)
                mass = np.divide(mass, left, out=np.zeros_like(mass), where=mass > 0.0)
            result = result * mass
        return result

    def _possible(self, tokens: IntArray) -> bool:
        return len(set(tokens.tolist())) == self.n and bool((self.draft[tokens] > 0.0).all())

    def _possible_each(self, rows: IntArray) -> Mask:
        ordered = np.sort(rows, axis=1)
        different = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
        return np.asarray(different & (self.draft[rows] > 0.0).all(axis=1))

    def mass_touching(self, subset: npt.ArrayLike) -> float:
        """Probability that some draft lies in S; a third of one `priority_marginals`."""
        inside = checks.check_mask(subset, self.vocab_size)
        others = np.flatnonzero(~inside & (self.draft > 0.0))
        if others.size < self.n:
            return 1.0
        if self.n <= 2:
            return super().mass_touching(inside)
        total, mass = 0.0, float((self.draft * inside).sum())
        for first, last in self._pieces():
            total += _touching(others, self._rung, *self._nodes, self.n, mass, first, last)
        return min(1.0, total)

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # From q until the token is new, which then follows q without the earlier ones.  Where
        # these have nearly all mass that takes too long: from what is left, after some attempts.
        drawn = np.zeros((size, self.n), dtype=np.int64)
        for place in range(self.n):
            rows = np.arange(size)
            for _ in range(ATTEMPTS):
                drawn[rows, place] = invert_cdf(self._cumulative, rng.random(rows.size))
                stale = (drawn[rows, :place] == drawn[rows, place, None]).any(axis=1)
                rows = rows[stale]
                if not rows.size:
                    break
            for earlier, places in equal_rows(drawn[rows, :place]):
                left = renormalise_without(self.draft, earlier)
                assert left is not None, "the support has n tokens"
                found = invert_cdf(np.cumsum(left), rng.random(places.size))
                drawn[rows[places], place] = found
        return drawn

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
        return DraftTuples.positive(listed, self._probability(listed))

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
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.draft)

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

    @property
    def _width(self) -> int:
        """Nodes that are worked on together: fewer where they would take long, or much memory."""
        return WIDTH if WIDTH * self.n * self.vocab_size <= STEPS else WIDTH // 4

    @cached_property
    def _nodes(self) -> tuple[FloatArray, FloatArray]:
        """Times and weights of an integral over [0, inf)."""
        return self._nodes_from(FIRST[0])

    def _nodes_from(self, first: float) -> tuple[FloatArray, FloatArray]:
        """Nodes of the trapezoidal rule in x > first, where t = exp(x - exp(-x)).

        The n-th ring is the sharper in log time the larger n is, about as 1 / sqrt(n).
        """
        top, tail = self.top_and_tail
        # Until n clocks have rung, what is left rings at this rate at least.
        slowest = tail + float(self.draft[top[-1]])
        step = min(0.22, 0.5 / np.sqrt(self.n))
        length = np.log((38.0 + self.n + 9.0 * np.sqrt(self.n)) / slowest) - first
        count = self._width * int(np.ceil(length / (step * self._width)))
        step = length / count
        x = first + step * np.arange(count)
        times = np.exp(x - np.exp(-x))
        return times, step * times * (1.0 + np.exp(-x))

    @cached_property
    def _rung(self) -> FloatArray:
        """Probability that clock i has rung by each node, shape (nodes / width, V, width)."""
        times, _ = self._nodes
        needed = 8.0 * times.size * self.vocab_size
        check_memory("the integral over the clocks", needed, MEMORY_LIMIT)
        rung = np.empty((times.size // self._width, self.vocab_size, self._width))
        for block, rows in zip(times.reshape(-1, self._width), rung, strict=True):
            checkpoint()
            _ring(self.draft, block, rows)
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
def _ring(draft: FloatArray, times: FloatArray, rung: FloatArray) -> None:
    """Write 1 - exp(-q t) of all tokens at some ascending times."""
    for token in range(draft.size):
        rate, row = draft[token], rung[token]
        if rate * times[-1] < SMALL:
            for k in range(times.size):
                x = rate * times[k]
                rest = 1.0 - x / 5.0 * (1.0 - x / 6.0 * (1.0 - x / 7.0))
                row[k] = x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * rest)))
        else:
            for k in range(times.size):
                row[k] = -np.expm1(-rate * times[k])


@compiled(fastmath=REASSOCIATE)
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
    size, width = draft.size, rung.shape[2]  # a loop of fixed length would not be vectorised
    silent = np.empty((size, width))  # no clock above has rung
    no, ringing = np.empty(width), np.empty(width)
    for block in range(first, last):
        product = weights[block * width : (block + 1) * width].copy()
        for place in range(size):
            yes, alone = rung[block, order[place]], silent[place]
            for k in range(width):
                alone[k] = product[k]
                product[k] *= 1.0 - yes[k]
        count = np.zeros((n, width))  # [m]: exactly m clocks below have rung
        rate = np.zeros((n - 1, width))  # [m]: the (m+1)-th clock below rings
        count[0] = 1.0
        for place in range(size - 1, -1, -1):
            token = order[place]
            yes, alone, own = rung[block, token], silent[place], draft[token]
            most, last_rate, value = count[n - 1], rate[n - 2], 0.0
            for k in range(width):
                no[k] = 1.0 - yes[k]
                ringing[k] = own * no[k]
                value += alone[k] * (ringing[k] * most[k] + yes[k] * last_rate[k])
            result[token] += value
            for m in range(n - 2, 0, -1):
                one, less, more, same = rate[m], rate[m - 1], count[m + 1], count[m]
                for k in range(width):
                    one[k] = no[k] * one[k] + yes[k] * less[k] + ringing[k] * same[k]
                    more[k] = no[k] * more[k] + yes[k] * same[k]
            one, more, same = rate[0], count[1], count[0]
            for k in range(width):
                one[k] = no[k] * one[k] + ringing[k] * same[k]
                more[k] = no[k] * more[k] + yes[k] * same[k]
                same[k] *= no[k]


@compiled(fastmath=REASSOCIATE)
def _touching(
    others: IntArray,
    rung: FloatArray,
    times: FloatArray,
    weights: FloatArray,
    n: int,
    mass: float,
    first: int,
    last: int,
) -> float:
    """Integrate over the time when the first clock of S rings, with fewer than n others before.

    `mass` is that of S, `others` are the tokens outside.
    """
    total, width = 0.0, rung.shape[2]
    for block in range(first, last):
        count = np.zeros((n, width))
        count[0] = 1.0
        for token in others:
            _add_clock(count, rung[block, token])
        for k in range(width):
            fewer = 0.0
            for m in range(n):
                fewer += count[m, k]
            node = block * width + k
            total += weights[node] * np.exp(-mass * times[node]) * fewer
    return mass * total


@compiled(fastmath=REASSOCIATE)
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
    size, width = draft.size, rung.shape[2]
    before = np.empty((size, n, width))  # [i, m]: exactly m of the clocks 0 .. i - 1 have rung
    fewer, most = np.empty(width), np.empty(width)
    for block in range(first, last):
        count = np.zeros((n, width))
        count[0] = 1.0
        for token in range(size):
            for m in range(n):
                for k in range(width):
                    before[token, m, k] = count[m, k]
            _add_clock(count, rung[block, token])
        count = np.zeros((n, width))
        count[0] = 1.0
        weight = weights[block * width : (block + 1) * width]
        for token in range(size - 1, -1, -1):
            yes = rung[block, token]
            for k in range(width):
                fewer[k] = most[k] = 0.0
            for m in range(n):
                same, earlier = count[m], before[token, n - 1 - m]
                for k in range(width):
                    most[k] += same[k]
                    fewer[k] += earlier[k] * most[k]
            value = 0.0
            for k in range(width):
                value += weight[k] * fewer[k] * (1.0 - yes[k])
            result[token] += draft[token] * value
            _add_clock(count, yes)


@compiled
def _add_clock(count: FloatArray, yes: FloatArray) -> None:
    for m in range(count.shape[0] - 1, 0, -1):
        more, same = count[m], count[m - 1]
        for k in range(yes.size):
            more[k] += yes[k] * (same[k] - more[k])
    same = count[0]
    for k in range(yes.size):
        same[k] *= 1.0 - yes[k]


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
