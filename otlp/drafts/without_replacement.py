"""n different tokens, drawn one after another from one draft distribution, renormalised."""

from __future__ import annotations

from functools import cached_property
from itertools import permutations
from math import comb, factorial, perm

import numpy as np
import numpy.typing as npt

from otlp import checks
from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, Mask, frozen, invert_cdf, renormalise_without
from otlp.drafts.exponential_race import ExponentialRace
from otlp.drafts.one_draft import OneDraft
from otlp.drafts.token_groups import TERMS
from otlp.drafts.token_sets import DraftTuples, TokenSets, as_float, next_combination
from otlp.numerics.arrival_times import arrival_times
from otlp.numerics.compiled import compiled
from otlp.numerics.equal_rows import equal_rows
from otlp.numerics.top_tokens import top_tokens

NO_GROUPS = frozen(np.zeros((0, TERMS)))

UNIT = 2.0**500
"""Unit of times, and inverse unit of rates, without which the rarest token's time overflows."""

REJECTIONS = 8
"""Maximum number of rejection sampling steps for a token that differs from the earlier tokens."""


class WithoutReplacement(OneDraft):
    """n different tokens: each is drawn from q without the earlier ones, renormalised.

    This is the Plackett-Luce distribution.  In an exponential race every token arrives at an
    exponential time with rate q_i, and the first n tokens to arrive are the drafted tuple, in
    order.  Probabilities of the drafted set are therefore integrals over time of products over
    tokens.

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
        If `n` is not an integer of at least 1, or larger than the support of q.

    Notes
    -----
    For n <= 2 all masses are finite sums, exact up to rounding.  For n >= 3 they are integrals with
    an error below 1e-12.  For n = 4 the integrals need 8 to 16 nodes if no n - 1 tokens have most
    of the mass, and about 40 nodes if n - 1 tokens have nearly all of it
    (`otlp.numerics.arrival_times`); more drafts need more nodes.  The integrals keep 8 bytes per
    node and likely token (`otlp.drafts.exponential_race`), at most 2 GiB.  `mass_within` and
    `mass_touching` cost O(V), and O(n) per likely token; likely tokens are those that cannot be in
    a group (`otlp.drafts.token_groups`).

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2)
    >>> float(drafts.probability([0, 1]))
    0.3
    """

    @checks.own_float_errors
    def next_distribution(self, drawn: npt.ArrayLike) -> FloatArray | None:
        """Return q without the drawn tokens, renormalised; O(V)."""
        return renormalise_without(self.draft, checks.check_drawn(drawn, self.n, self.vocab_size))

    @cached_property
    @checks.own_float_errors
    def inclusion(self) -> FloatArray:
        """Probability that token i is among the drafts, shape (V,).

        O(V) for n <= 2, otherwise O(nV) per node.
        """
        if self.n == 1:
            return self.draft
        if self.n == 2:
            top, odds, after_top = self._pairs
            second = _sum_of_others(odds) * self.draft + self.draft[top] * after_top
            return frozen(self.draft + second)
        # At a rank above all others, of probability 0, a token is the best whenever it is drafted.
        tokens = np.flatnonzero(self.support)
        shares = np.repeat([1.0, 0.0], tokens.size)
        chances, _ = self._race.chances(self.n, np.tile(tokens, 2), shares, NO_GROUPS)
        result = np.zeros(self.vocab_size)
        result[tokens] = chances[tokens.size :]
        return frozen(np.minimum(result, 1.0))

    @checks.own_float_errors
    def priority_marginals(self, order: IntArray) -> FloatArray:
        """Return the distribution of the first draft in `order`.

        O(V) for n <= 2, otherwise O(nV) per node.
        """
        order = checks.check_order(order, self.vocab_size)
        if self.n == 1:
            return self.draft.copy()
        if self.n == 2:
            return _pair_marginals(self.draft, *self._pairs, order)
        result = np.zeros(self.vocab_size)
        ranked = order[::-1]
        ranked = ranked[self.draft[ranked] > 0.0]
        result[ranked] = self._race.chances(self.n, ranked, np.ones(ranked.size), NO_GROUPS)[0]
        return result

    def _best_ranked(self, names: IntArray, ranked: IntArray, shares: FloatArray) -> FloatArray:
        """Return the distribution of the drafted token with the best rank.

        For two drafts or more.  Tokens draw their ranks independently; tokens of equal rank are
        ordered at random.

        Parameters
        ----------
        names : ndarray, shape (V,)
            Group of each token, V + g for group g, or the token itself.
        ranked : ndarray, shape (M,)
            Token or group of each rank, from the lowest to the best.
        shares : ndarray, shape (M,)
            Probability that the token, or each token of the group, has the rank; the probabilities
            of a token sum to one.

        Returns
        -------
        ndarray, shape (V,)
            O(V), and O(n) for each rank of a token and node of the integral; a rank of a group
            costs as much as O(n) ranks.
        """
        groups = max(int(names.max()) + 1 - self.vocab_size, 0)
        sums = self._race.power_sums(names, groups)
        chances, laws = self._race.chances(self.n, ranked, shares, sums)
        return self._race.law(names, ranked, shares * chances, laws)

    @cached_property
    def _race(self) -> ExponentialRace:
        top, tail = self.top_and_tail
        times, weights = arrival_times(self.n, tail + float(self.draft[top[-1]]), unit=UNIT)
        return ExponentialRace.at(UNIT * self.draft, self.n, times, weights)

    def _outside(self, tokens: IntArray) -> FloatArray:
        """Return the mass of all tokens except the given different tokens, without cancellation.

        Parameters
        ----------
        tokens : ndarray, shape (..., m)
            At most n tokens.

        Returns
        -------
        ndarray, shape (...)
        """
        top, tail = self.top_and_tail
        # Add the n most likely tokens one by one; subtract the given others from the tail's sum.
        among = np.isin(tokens, top)
        drawn = np.where(among, 0.0, self.draft[tokens]).sum(axis=-1)
        left: FloatArray = np.maximum(tail - drawn, 0.0)
        for token in top:
            left = left + np.where((tokens == token).any(axis=-1), 0.0, self.draft[token])
        return left

    def _probability(self, rows: IntArray) -> FloatArray:
        result = np.ones(len(rows))
        for place in range(self.n):
            new = ~(rows[:, :place] == rows[:, place, None]).any(axis=1)
            mass = np.where(new, self.draft[rows[:, place]], 0.0)
            if place:
                left = np.where(new, self._outside(rows[:, :place]), 1.0)
                mass = np.divide(mass, left, out=np.zeros_like(mass), where=mass > 0.0)
            result = result * mass
        return result

    def _possible(self, tokens: IntArray) -> bool:
        return len(set(tokens.tolist())) == self.n and bool((self.draft[tokens] > 0.0).all())

    def _possible_each(self, rows: IntArray) -> Mask:
        ordered = np.sort(rows, axis=1)
        different = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
        return np.asarray(different & (self.draft[rows] > 0.0).all(axis=1))

    @checks.own_float_errors
    def _best_in(self, inside: Mask, above: bool) -> float:
        """See `DraftScheme._best_in`; O(V), and O(n) per likely token."""
        if not above and np.count_nonzero(inside & self.support) < self.n:
            return 0.0
        if self.n <= 2:
            return super()._best_in(inside, above)
        # The tokens of each side that can be in a group are one group: they need no order.
        grouped, size = self._race.groupable, self.vocab_size
        sums = self._race.power_sums(np.where(grouped, size + inside, 0), 2)
        likely = ~grouped
        best = np.append(np.flatnonzero(likely & inside), size + 1)
        rest = np.append(np.flatnonzero(likely & ~inside), size)
        steps = np.concatenate([rest, best] if above else [best])
        chances, _ = self._race.chances(self.n, steps, np.ones(steps.size), sums)
        return min(1.0, float(chances[-best.size :].sum()))

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        # Rejection sampling from q until the token is new, which then follows q without the earlier
        # tokens.  If these have nearly all of the mass, invert the remaining distribution.
        drawn = np.zeros((size, self.n), dtype=np.int64)
        for place in range(self.n):
            rows = np.arange(size)
            for _ in range(REJECTIONS):
                drawn[rows, place] = invert_cdf(self._cumulative, rng.random(rows.size))
                repeated = (drawn[rows, :place] == drawn[rows, place, None]).any(axis=1)
                rows = rows[repeated]
                if not rows.size:
                    break
            for earlier, places in equal_rows(drawn[rows, :place]):
                left = renormalise_without(self.draft, earlier)
                assert left is not None, "the support has n tokens"
                found = invert_cdf(np.cumsum(left), rng.random(places.size))
                drawn[rows[places], place] = found
        return drawn

    def tuple_count(self) -> float:
        """Return k! / (k - n)! for a support of k tokens."""
        return as_float(perm(int(np.count_nonzero(self.draft)), self.n))

    def set_count(self) -> tuple[float, float]:
        """Return the number of sets of n tokens of the support, and of their members."""
        count = as_float(comb(int(np.count_nonzero(self.draft)), self.n))
        return count, count * self.n

    @checks.own_float_errors
    def enumerate_tuples(self, memory_limit: int = MEMORY_LIMIT) -> DraftTuples:
        """List all tuples of positive probability."""
        count = self.tuple_count()
        check_memory(f"listing {count:,.0f} tuples", 8.0 * count * (3 * self.n + 4), memory_limit)
        sets = _combinations(np.flatnonzero(self.draft), self.n)
        orders = np.array(list(permutations(range(self.n))))
        listed = sets[:, orders].reshape(len(sets) * factorial(self.n), self.n)
        return DraftTuples.positive(listed, self._probability(listed))

    @checks.own_float_errors
    def enumerate_sets(self, memory_limit: int = MEMORY_LIMIT) -> TokenSets:
        """List the sets of n tokens with their masses, without listing the tuples.

        The mass of a set is a sum over its last-drawn token of the masses of smaller sets: 2^n
        positive terms instead of n! tuples.
        """
        count, total = self.set_count()
        needed = 8.0 * (2 * total + 2 * count) + 16.0 * 2.0 ** min(self.n, 1_000)
        check_memory(f"listing the {count:,.0f} sets of {self.n} tokens", needed, memory_limit)
        sets = _combinations(np.flatnonzero(self.draft), self.n)
        mass = _set_masses(self.draft, sets, self._outside(sets))
        sets, mass = sets[mass > 0.0], mass[mass > 0.0]
        offsets = self.n * np.arange(len(sets) + 1, dtype=np.int64)
        return TokenSets(sets.reshape(-1), offsets, mass)

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.draft)

    @cached_property
    @checks.own_float_errors
    def top_and_tail(self) -> tuple[IntArray, float]:
        """The n most likely tokens, and the mass of all other tokens."""
        top = top_tokens(self.draft, self.n)
        others = self.draft.copy()
        others[top] = 0.0
        return top, float(others.sum())

    @cached_property
    def _pairs(self) -> tuple[int, FloatArray, FloatArray]:
        """Most likely token, odds q / (1 - q) of the others, and distribution after the token."""
        top = int(np.argmax(self.draft))
        after_top = renormalise_without(self.draft, np.array([top]))
        assert after_top is not None, "the support has two tokens"
        odds = self.draft.copy()
        odds[top] = 0.0
        odds /= 1.0 - odds
        return top, odds, after_top


def _sum_of_others(values: FloatArray) -> FloatArray:
    """Return the sum of all other values for each value, without subtraction."""
    before, after = np.zeros((2, values.size))
    np.cumsum(values[:-1], out=before[1:])
    np.cumsum(values[:0:-1], out=after[-2::-1])
    return before + after


@compiled
def _pair_marginals(
    draft: FloatArray, top: int, odds: FloatArray, after_top: FloatArray, order: IntArray
) -> FloatArray:
    # P({i, j}) = odds_i q_j + odds_j q_i, except for the top token, whose odds may overflow.
    result = np.empty(draft.size)
    below, odds_below, top_below, after_below = 0.0, 0.0, 0.0, 0.0
    for place in range(order.size - 1, -1, -1):
        token = order[place]
        own = draft[token]
        if token == top:
            result[token] = own * (after_below + odds_below)
            top_below = own
        else:
            result[token] = odds[token] * below + own * odds_below + after_top[token] * top_below
        below += own
        odds_below += odds[token]
        after_below += after_top[token]
    return result


@compiled
def _combinations(tokens: IntArray, n: int) -> IntArray:
    """Return all sets of n of the tokens, in lexicographic order."""
    count = 1
    for j in range(n):
        count = count * (tokens.size - j) // (j + 1)
    result = np.empty((count, n), np.int64)
    chosen = np.arange(n)
    for row in range(count):
        for j in range(n):
            result[row, j] = tokens[chosen[j]]
        next_combination(chosen, n, tokens.size)
    return result


@compiled
def _set_masses(draft: FloatArray, sets: IntArray, outside: FloatArray) -> FloatArray:
    n = sets.shape[1]
    result = np.empty(len(sets))
    mass = np.zeros(1 << n)  # indexed by the subset of the set that has been drawn so far
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
