"""Distribution of the best-ranked draft, for drafts without replacement and random ranks.

The drafted tokens are the first n to arrive in an exponential race at rates q
(`otlp.WithoutReplacement`), and each token draws its rank from its own distribution.  The ranks are
processed from the lowest to the best.  Each step moves a share of one token below the level; the
probability that this token is the best is the probability that it has this rank and is drafted,
while the other drafted tokens are below the level.  At a fixed time these probabilities are
products over tokens, stored as their first n coefficients; a step divides the factor of its token
out, changes the factor, and multiplies it in again.

A step may also move a group of tokens (`otlp.drafts.token_groups`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts.token_groups import GROUPED_UP_TO, group_step, power_sums, time_tables, write_laws
from otlp.numerics.best_of import gauss_rule
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.lanes import LANES, broadcast, load, multiply, multiply_add, store, sum_lanes
from otlp.timing import checkpoint

SERIES_UP_TO = 2.0**-6
"""Largest x for which exp(x) - 1 is computed as a series of seven terms, which vectorises; the
remainder is at most x^7 / 8! < 6e-18 relative to x."""

FEW_ARRIVALS = 0.5
"""Mean number of arrivals of a token up to which its factor can be divided out."""

FEW_DRAFTS = 16
"""Number of drafts up to which no significant digit is lost, even if nearly all are drafted."""

NOTHING = np.zeros((0, 1, LANES))
"""Sums over no groups."""


@dataclass(frozen=True, eq=False)
class ExponentialRace:
    """An exponential race at the quadrature nodes of the integral over time, in blocks of LANES.

    Attributes
    ----------
    draft : ndarray, shape (V,)
        The rates q.
    times : ndarray, shape (B, LANES)
        The nodes.
    unit : float
        Largest rate of a token in a group.
    least_likely : float
        Tokens of higher rate are likely: their odds are kept, in place of the series.
    place : ndarray, shape (V,), int64
        Index of a likely token among the likely tokens, the most likely first; else -1.
    heads : ndarray, shape (H,), int64
        The first H likely tokens: so likely that dividing their factors out would lose digits;
        products without a head are computed again.
    arrived : ndarray, shape (B, L, LANES)
        Odds that a likely token has arrived; for heads, the probability.
    survival : ndarray, shape (B, H, LANES)
        Probability that a head has not arrived.
    start : ndarray, shape (B, LANES)
        Weights of the nodes, times the probability that no token except heads has arrived.
    """

    draft: FloatArray
    times: FloatArray
    unit: float
    least_likely: float
    place: IntArray
    heads: IntArray
    arrived: FloatArray
    survival: FloatArray
    start: FloatArray

    @classmethod
    def at(
        cls, draft: FloatArray, n: int, times: FloatArray, weights: FloatArray
    ) -> ExponentialRace:
        """Prepare the race at the nodes, shape (B, LANES); SizeLimitError above 2 GiB."""
        least_likely = SERIES_UP_TO / float(times[-1, -1])
        order = np.flatnonzero(draft > least_likely)
        needed = 8.0 * times.size * order.size
        check_memory("the integral over arrival times", needed, MEMORY_LIMIT)
        order = order[np.argsort(-draft[order], kind="stable")]
        rest = np.ones(draft.size, dtype=bool)
        rest[order] = False
        left = np.append(draft[order], draft[rest].sum())[::-1].cumsum()[::-1]
        # Dividing out the factor of a token with inclusion probability above 1/2 amplifies errors,
        # by up to 2^n in total.
        likely = n if n <= FEW_DRAFTS else 2 * n
        rates = draft[order]
        harmless = (likely * rates <= left[:-1]) | (rates <= FEW_ARRIVALS / times[-1, -1])
        count = int(np.argmax(np.append(harmless, True)))
        place = np.full(draft.size, -1, dtype=np.int64)
        place[order] = np.arange(order.size)
        with np.errstate(over="ignore", under="ignore"):  # such tokens have certainly arrived
            mean = rates[:, None] * times[:, None]
            survival = np.exp(-mean[:, :count])
            arrived = np.expm1(mean)
            arrived[:, :count] = -np.expm1(-mean[:, :count])
            start = weights * np.exp(-left[count] * times)
        unit = GROUPED_UP_TO / float(times[-1, -1])
        return cls(draft, times, unit, least_likely, place, order[:count], arrived, survival, start)

    @property
    def groupable(self) -> Mask:
        """Whether each token can be in a group; see `otlp.drafts.token_groups`."""
        return self.draft <= self.unit

    def power_sums(self, names: IntArray, groups: int) -> FloatArray:
        """Return the power sums of groups, V + g for each token of group g; shape (G, TERMS)."""
        return power_sums(self.draft, names, self.unit, groups)

    def chances(
        self, n: int, tokens: IntArray, shares: FloatArray, sums: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the probability that each step's token is the best, given that it has that rank.

        Parameters
        ----------
        n : int
            Number of drafts, at least 2.
        tokens : ndarray, shape (M,)
            Token of each rank, from the lowest rank to the best; V + g for group g.
        shares : ndarray, shape (M,)
            Probability that the token, or each token of the group, has the rank; the probabilities
            of a token sum to one.
        sums : ndarray, shape (G, TERMS)
            Power sums of the groups; see `otlp.drafts.token_groups.power_sums`.

        Returns
        -------
        chances : ndarray, shape (M,)
            Summed over the tokens of a group; O(n) per step of a token and node.
        laws : ndarray, shape (G, TERMS)
            Coefficients of (q / unit)^(k + 1) in the probability that a token of rate q of the
            group is the best.
        """
        chances, laws = np.zeros(tokens.size), np.zeros(sums.shape)
        levels, weights = gauss_rule((n + 1) // 2)
        rows = self.times[:, None], self.arrived, self.survival, self.start[:, None]
        for times, arrived, survival, start in zip(*rows, strict=True):
            checkpoint()
            odds = drift = by_odds = by_drift = NOTHING
            if len(sums):
                tables = time_tables(self.unit, times[0], n)
                odds, drift = (
                    (sums @ table).reshape(len(sums), -1, times.shape[1]) for table in tables
                )
                by_odds, by_drift = np.zeros((2, *odds.shape))
            _add_chances(
                self.draft, times, self.least_likely, self.place, self.heads, arrived, survival,
                start, n, tokens, shares, odds, drift, levels, weights, chances, by_odds, by_drift,
            )  # fmt: skip
            if len(sums):
                for table, found in zip(tables, (by_odds, by_drift), strict=True):
                    laws += found.reshape(len(sums), -1) @ table.T
        if len(sums):  # In the products of a group, terms of opposite sign leave rounding errors.
            np.maximum(chances, 0.0, out=chances)
        return chances, laws

    def law(
        self, names: IntArray, tokens: IntArray, selected: FloatArray, laws: FloatArray
    ) -> FloatArray:
        """Return the probability that each token is the best, shape (V,).

        Parameters
        ----------
        names : ndarray, shape (V,)
            V + g for each token of group g; the token itself for other tokens.
        tokens : ndarray, shape (M,)
            Token or group of each rank.
        selected : ndarray, shape (M,)
            Probability that each rank is the best drafted.
        laws : ndarray, shape (G, TERMS)
            See `chances`.
        """
        result = sum_by(tokens, selected, self.draft.size)[: self.draft.size]
        write_laws(self.draft, names, self.unit, laws, result)
        return result


@compiled(slp=True, fastmath=WITHOUT_NAN)
def _add_chances(
    draft: FloatArray,
    times: FloatArray,
    least_likely: float,
    place: IntArray,
    heads: IntArray,
    arrived: FloatArray,
    survival: FloatArray,
    start: FloatArray,
    n: int,
    tokens: IntArray,
    shares: FloatArray,
    group_odds: FloatArray,
    group_drift: FloatArray,
    levels: FloatArray,
    weights: FloatArray,
    chances: FloatArray,
    by_odds: FloatArray,
    by_drift: FloatArray,
) -> None:
    """Integrate over the time of the n-th arrival; see `ExponentialRace.chances`.

    Row m of `count` is the probability that m tokens of the tail have arrived, all below the level;
    row m of `rate` is the rate of one more arrival.  `head_*` are the same for the heads, `rest_*`
    for all heads except `current`.  A step divides the factor of its token out of a row,
    `*_without`, and multiplies the new factor in.  For groups see `group_step`.
    """
    below = np.zeros(draft.size + len(group_odds))
    work = np.zeros((3, n, LANES))
    count, rate = np.zeros((n, LANES)), np.zeros((n, LANES))
    head_count, head_rate = np.zeros((n, LANES)), np.zeros((n, LANES))
    rest_count, rest_rate = np.zeros((n, LANES)), np.zeros((n, LANES))
    store(count, 0, load(start, 0))  # Assigning a row would take a second to compile.
    head_count[0] = 1.0
    for h in range(heads.size):
        store(head_count, 0, multiply(load(head_count, 0), load(survival, h)))
    current = -1
    for step in range(tokens.size):
        token = tokens[step]
        share, reached = shares[step], below[token]
        below[token] = reached + share
        if token >= draft.size:
            group = token - draft.size
            chances[step] += group_step(
                group_odds[group], group_drift[group], reached, share, levels, weights,
                heads.size > 0, head_count, head_rate, count, rate, work, by_drift[group],
                by_odds[group],
            )  # fmt: skip
            continue
        own = draft[token]
        each, chance = broadcast(own), broadcast(0.0)
        at = place[token] if own > least_likely else -1
        if at >= 0:
            odds = load(arrived, at)
        else:
            mean = multiply(each, load(times, 0))
            odds = broadcast(1.0 / 5040.0)
            for coefficient in (1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0):
                odds = multiply_add(mean, odds, broadcast(coefficient))
            odds = multiply(mean, odds)
        if 0 <= at < heads.size:
            if token != current:
                _others(draft, arrived, survival, below, heads, token, rest_count, rest_rate)
                current = token
            survives = load(survival, at)
            each = multiply(each, survives)
            for m in range(n):
                rest, tail = load(rest_count, m), load(count, n - 1 - m)
                chance = multiply_add(each, multiply(tail, rest), chance)
                if m < n - 1:
                    more = multiply(load(count, n - 2 - m), load(rest_rate, m))
                    more = multiply_add(load(rate, n - 2 - m), rest, more)
                    chance = multiply_add(odds, more, chance)
            _multiply_factor(
                rest_count, rest_rate, survival, arrived, at, own, below[token], head_count,
                head_rate,
            )  # fmt: skip
        else:
            taken_rate, taken_odds = broadcast(-reached * own), multiply(broadcast(-reached), odds)
            added_rate, added_odds = broadcast(share * own), multiply(broadcast(share), odds)
            count_without, rate_m = load(count, 0), load(rate, 0)
            rate_without = multiply_add(taken_rate, count_without, rate_m)
            store(rate, 0, multiply_add(added_rate, count_without, rate_m))
            for m in range(1, n):
                if heads.size > 0:
                    rest = multiply(rate_without, load(head_count, n - 1 - m))
                    rest = multiply_add(count_without, load(head_rate, n - 1 - m), rest)
                    chance = multiply_add(odds, rest, chance)
                    rest = multiply(count_without, load(head_count, n - m))
                    chance = multiply_add(each, rest, chance)
                elif m == n - 1:
                    chance = multiply(odds, rate_without)
                count_m, rate_m = load(count, m), load(rate, m)
                store(count, m, multiply_add(added_odds, count_without, count_m))
                next_without = multiply_add(taken_odds, count_without, count_m)
                # The last row of the rates is for n + 1 arrivals, which is not needed.
                if m < n - 1:
                    added = multiply_add(added_odds, rate_without, rate_m)
                    taken = multiply_add(taken_odds, rate_without, rate_m)
                    store(rate, m, multiply_add(added_rate, next_without, added))
                    rate_without = multiply_add(taken_rate, next_without, taken)
                count_without = next_without
            chance = multiply_add(multiply(each, count_without), load(head_count, 0), chance)
        chances[step] += sum_lanes(chance)


@compiled(slp=True, fastmath=WITHOUT_NAN)
def _others(
    draft: FloatArray,
    arrived: FloatArray,
    survival: FloatArray,
    below: FloatArray,
    heads: IntArray,
    token: int,
    count: FloatArray,
    rate: FloatArray,
) -> None:
    """Compute count and rate of all heads except one token; see `_add_chances`."""
    count[:], rate[:] = 0.0, 0.0
    count[0] = 1.0
    for h in range(heads.size):
        head = heads[h]
        if head != token:
            _multiply_factor(
                count, rate, survival, arrived, h, draft[head], below[head], count, rate
            )


@compiled(inline="always")
def _multiply_factor(
    count: FloatArray,
    rate: FloatArray,
    survival: FloatArray,
    arrived: FloatArray,
    head: int,
    own: float,
    below: float,
    to_count: FloatArray,
    to_rate: FloatArray,
) -> None:
    """Multiply in the factor of a head with the share `below` of its ranks below the level."""
    survives, odds = load(survival, head), multiply(broadcast(below), load(arrived, head))
    own = below * own
    for m in range(count.shape[0] - 1, -1, -1):
        count_m = load(count, m)
        rate_m = multiply(survives, multiply_add(broadcast(own), count_m, load(rate, m)))
        count_m = multiply(survives, count_m)
        if m > 0:
            count_m = multiply_add(odds, load(count, m - 1), count_m)
            rate_m = multiply_add(odds, load(rate, m - 1), rate_m)
        store(to_count, m, count_m)
        store(to_rate, m, rate_m)
