"""Groups of unlikely tokens that move together in an exponential race.

All tokens of a group have the same ranks, with the same probabilities.  Tokens that draw the same
rank are ordered at random: the level of a token is uniform within the rank.  At a fixed time the
probability that a token is the best is a polynomial of its level of degree n - 1, which a
Gauss-Legendre rule integrates exactly.

The odds that a token of rate q has arrived by the time t are exp(q t) - 1.  If q t is small, the
products over the tokens of a group depend, to rounding, on the first power sums of the rates only,
and the probability that a token is the best is a polynomial of its rate.  A step thus costs the
same for any number of tokens.
"""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.lanes import LANES, broadcast, load, multiply, multiply_add, store, sum_lanes

GROUPED_UP_TO = 2.0**-7
"""Largest q t of a grouped token.  Powers of exp(q t) - 1 are then series of `TERMS` terms, whose
remainders are at most 7 (q t)^8 < 1e-16 relative to q t."""

TERMS = LANES
"""Number of terms of a series, and of power sums of a group."""


def _series() -> FloatArray:
    """Return the coefficients of (exp(x) - 1)^m: entry [k, m] is that of x^k."""
    table = np.eye(TERMS + 1)
    single = 1.0 / np.cumprod(np.maximum(np.arange(TERMS + 1.0), 1.0))
    for m in range(1, TERMS + 1):
        for k in range(TERMS + 1):
            table[k, m] = sum(table[k - j, m - 1] * single[j] for j in range(1, k + 1))
    return table


SERIES = _series()


@compiled
def power_sums(draft: FloatArray, names: IntArray, unit: float, groups: int) -> FloatArray:
    """Return the sums over each group of the powers 1, ..., `TERMS` of q / unit.

    The first sum has compensated rounding; O(V).

    Parameters
    ----------
    draft : ndarray, shape (V,)
        The rates q.
    names : ndarray, shape (V,), int64
        V + g for each token of group g; less for other tokens.
    unit : float
        Upper bound on the rates of grouped tokens.
    groups : int
        Number of groups G.

    Returns
    -------
    ndarray, shape (G, TERMS)
    """
    sums, lost = np.zeros((groups, TERMS)), np.zeros(groups)
    for i in range(draft.size):
        group = names[i] - draft.size
        if group >= 0:
            x, old, power = draft[i] / unit, sums[group, 0], 1.0
            for k in range(TERMS):
                power *= x
                sums[group, k] += power
            lost[group] += (max(old, x) - sums[group, 0]) + min(old, x)
    for group in range(groups):
        sums[group, 0] += lost[group]
    return sums


@compiled
def write_laws(
    draft: FloatArray, names: IntArray, unit: float, laws: FloatArray, result: FloatArray
) -> None:
    """Write the probability that each grouped token is the best, a polynomial of its rate."""
    for i in range(draft.size):
        group = names[i] - draft.size
        if group >= 0:
            x, law = draft[i] / unit, laws[group]
            square = x * x
            low = law[0] + x * law[1] + square * (law[2] + x * law[3])
            high = law[4] + x * law[5] + square * (law[6] + x * law[7])
            result[i] = max(x * (low + square * square * high), 0.0)


def time_tables(unit: float, times: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of o^(m + 1) and q o^m, odds o, in powers of q / unit.

    Parameters
    ----------
    unit : float
        Upper bound on the rates of grouped tokens.
    times : ndarray, shape (LANES,)
    n : int
        Number of drafts.

    Returns
    -------
    odds, drift : ndarray, shape (TERMS, M * LANES)
        Coefficient of (q / unit)^(k + 1) in row k; M = min(n, TERMS).
    """
    powers, terms = (unit * times) ** np.arange(TERMS + 1)[:, None], min(n, TERMS)
    odds = SERIES[1:, 1 : terms + 1, None] * powers[1:, None]
    drift = unit * SERIES[:TERMS, :terms, None] * powers[:TERMS, None]
    return odds.reshape(TERMS, -1), drift.reshape(TERMS, -1)


@compiled(slp=True, fastmath=WITHOUT_NAN)
def group_step(
    odds: FloatArray,
    drift: FloatArray,
    reached: float,
    share: float,
    levels: FloatArray,
    weights: FloatArray,
    with_heads: bool,
    head_count: FloatArray,
    head_rate: FloatArray,
    count: FloatArray,
    rate: FloatArray,
    work: FloatArray,
    by_drift: FloatArray,
    by_odds: FloatArray,
) -> float:
    """Move a share of a group below the level; see `otlp.drafts.exponential_race`.

    With the odds o of a token, C and R the generating functions of `count` and `rate` at a level,
    and b the share of the token below the level, the token of rate q is the best with density

        coefficient n - 1 in z of  q C / (1 + z b o)^2 + z o R / (1 + z b o).

    The factors of q o^m are added to row m of `by_drift`, and those of o^(m + 1) to row m of
    `by_odds`, with the weight `share`.

    Parameters
    ----------
    odds, drift : ndarray, shape (M, LANES)
        Sums of o^(m + 1) and of q o^m over the group.
    reached : float
        Share of the group below the level before the step.
    share : float
    levels, weights : ndarray, shape (L,)
        Gauss-Legendre rule on [0, 1].
    with_heads : bool
        Whether there are heads, with `head_count` and `head_rate`.
    count, rate : ndarray, shape (n, LANES)
        Overwritten.
    work : ndarray, shape (3, n, LANES)
        Overwritten.
    by_drift, by_odds : ndarray, shape (M, LANES)

    Returns
    -------
    float
        Probability that a token of the group is the best, given its rank, summed over the group.
    """
    growth, next_count, next_rate = work[0], work[1], work[2]
    n, terms = len(count), len(odds)
    chance = broadcast(0.0)
    for level in range(levels.size + 1):
        rise = share * levels[level] if level < levels.size else share
        below = reached + rise
        # growth = exp(sum over m of (-1)^(m + 1) (below^m - reached^m) o^m z^m / m)
        for j in range(n):
            grown, sum_rate = broadcast(1.0 if j == 0 else 0.0), broadcast(0.0)
            sign, gain, power = 1.0, rise, 1.0
            for m in range(min(j, terms)):
                term = multiply(load(odds, m), load(growth, j - 1 - m))
                grown = multiply_add(broadcast(sign * gain / j), term, grown)
                term = multiply(load(drift, m), load(next_count, j - 1 - m))
                sum_rate = multiply_add(broadcast(sign * gain), term, sum_rate)
                power *= reached
                gain = gain * below + power * rise
                sign = -sign
            store(growth, j, grown)
            if j > 0:
                store(next_rate, j - 1, sum_rate)
            sum_count = broadcast(0.0)
            for m in range(j + 1):
                sum_count = multiply_add(load(growth, m), load(count, j - m), sum_count)
            store(next_count, j, sum_count)
        # Row n - 1 of the rates is for n + 1 arrivals, which is not needed.
        for j in range(n - 1):
            sum_rate = load(next_rate, j)
            for m in range(j + 1):
                sum_rate = multiply_add(load(growth, m), load(rate, j - m), sum_rate)
            store(next_rate, j, sum_rate)
        if level == levels.size:
            break
        if with_heads:
            _with_heads(n, head_count, head_rate, next_count, next_rate)
        factor = weights[level]
        for m in range(terms):
            scale = broadcast((m + 1) * factor)
            term = multiply(scale, load(next_count, n - 1 - m))
            chance = multiply_add(term, load(drift, m), chance)
            store(by_drift, m, multiply_add(broadcast(share), term, load(by_drift, m)))
            if m < n - 1:
                term = multiply(broadcast(factor), load(next_rate, n - 2 - m))
                chance = multiply_add(term, load(odds, m), chance)
                store(by_odds, m, multiply_add(broadcast(share), term, load(by_odds, m)))
            factor *= -below
    for j in range(n):
        store(count, j, load(next_count, j))
        if j < n - 1:
            store(rate, j, load(next_rate, j))
    return sum_lanes(chance)


@compiled(inline="always")
def _with_heads(
    n: int, head_count: FloatArray, head_rate: FloatArray, count: FloatArray, rate: FloatArray
) -> None:
    """Multiply the generating functions of the heads in, in place."""
    for j in range(n - 1, -1, -1):
        sum_count, sum_rate = broadcast(0.0), broadcast(0.0)
        for m in range(j + 1):
            tail = load(count, j - m)
            sum_count = multiply_add(tail, load(head_count, m), sum_count)
            sum_rate = multiply_add(tail, load(head_rate, m), sum_rate)
            sum_rate = multiply_add(load(rate, j - m), load(head_count, m), sum_rate)
        store(count, j, sum_count)
        if j < n - 1:  # Row n - 1 of the rates is for n + 1 arrivals, which is not needed.
            store(rate, j, sum_rate)
