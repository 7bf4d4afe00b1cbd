"""Threshold at which a score is cut in two for the tokens of a node: the two-slice rule on a chain.

The mean densities of the win of a score, below and above a place, rise with the place.  So does the
total mass that these densities give to tokens with given wanted masses.  The threshold is the place
where the total is one.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import NamedTuple

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled
from otlp.numerics.score_chains import NEGLIGIBLE, Score, cell_of, place_of, rise_in, sliced, slices
from otlp.numerics.two_slice import (
    Clipped,
    balance,
    clipped,
    clipped_from_below,
    shares,
    wanted_ratios,
)

EQUAL_MEANS = 1e-12
"""Difference of the means below which two slices count as one."""
EXCESS_TOLERANCE = 1e-10
"""Tolerance of the equation for the threshold; validity does not depend on it."""
START = 0.75
"""Start of the root finding, as a fraction of the bracket."""
LARGEST_MEAN = 1e300
"""Upper limit on mean densities; it does not affect thresholds."""


class _Means(NamedTuple):
    """Mean density of the win over F, below and above a place z, and the derivatives in z.

    The mean of an empty side is the limit, with derivative 0.
    """

    low: float
    high: float
    low_rate: float
    high_rate: float


@compiled
def _means(score: Score, log_z: float) -> _Means:
    cell, offset = cell_of(score, log_z)
    below, above, won_below, won_above = slices(score, cell, offset)
    rise_rate = win_rate = 0.0
    width = exp(offset)
    if width > 0.0:
        rise, rate = rise_in(score, cell, offset)
        rise_rate = min(exp(rise), score.masses[cell]) * rate / width
        win_rate = score.wins[cell] * min(exp(offset - score.widths[cell]), 1.0) / width
    low = won_below / below if below > 0.0 else 0.0
    low_rate = (win_rate - low * rise_rate) / below if below > 0.0 else 0.0
    if above > 0.0:
        high = min(won_above / above, LARGEST_MEAN)
        return _Means(low, high, low_rate, (high * rise_rate - win_rate) / above)
    last = score.masses.size - 1
    rise, rate = rise_in(score, last, score.widths[last])
    slope = exp(rise) * rate
    return _Means(low, score.wins[last] / slope if slope > 0.0 else LARGEST_MEAN, low_rate, 0.0)


@compiled
def threshold(score: Score, weight: float, p: FloatArray, q: FloatArray) -> tuple[int, float]:
    """Solve sum_x min(max(w p, low q), high q) = 1 for the place at which the slices are cut.

    Parameters
    ----------
    score : Score
        Score of a slot that is filled by a draw from q.
    weight, p, q : float, ndarray, ndarray
        Token x wants the mass w p_x; `p` and `q` have shape (V,).

    Returns
    -------
    cell, offset : int, float
        The place; see `slices`.

    Notes
    -----
    The sum rises with the place.  The equation is solved in u = z^h, where h is the product of all
    powers; an unskewed score is uniform in u.  Each pass over the tokens determines which tokens
    are clipped.  Newton's method, without further passes, then finds the root for these clipped
    tokens.  If a pass has not halved the excess, a bisection follows.  If all places in an interval
    are solutions, the middle is returned.  About 6 passes over the vocabulary.
    """
    power = 1.0
    for h in score.powers:
        power *= h
    a, b = exp(power * score.edges[0]), exp(power * score.edges[-1])
    first, last = a, b
    u, before = a + START * (b - a), inf
    at_a, at_b = _means(score, score.edges[0]), _means(score, score.edges[-1])
    seen_end = False
    for _ in range(60):
        # At the end of the score the mass above would be rounding error.
        means = _means(score, log(u) / power) if u < b else at_b
        found = clipped(weight, p, q, means.low, means.high)
        if abs(found.excess) <= EXCESS_TOLERANCE or b - a <= EXCESS_TOLERANCE * b:
            break
        if found.excess < 0.0:
            a, at_a = u, means
        else:
            b, at_b, seen_end = u, means, True
        solvable = _linearised(found, means, at_a) < 0.0 < _linearised(found, means, at_b)
        if solvable and abs(found.excess) <= 0.5 * before:
            u = _root(score, power, a, b, u, found, means)
        elif found.excess < 0.0 and not seen_end:
            # The target hardly wants this path: the place is at or near the end.
            u, seen_end = b, True
        else:
            u = 0.5 * (a + b)
        before = abs(found.excess)
    if clipped_from_below(weight, p, q, means.low) <= EXCESS_TOLERANCE:
        least, most = wanted_ratios(weight, p, q)
        a, b, c, d = first, last, first, last
        for _ in range(50):
            middle = 0.5 * (a + b)
            if _means(score, log(middle) / power).high >= most:
                b = middle
            else:
                a = middle
            middle = 0.5 * (c + d)
            if _means(score, log(middle) / power).low <= least:
                c = middle
            else:
                d = middle
        if b <= c:
            u = 0.5 * (b + c)
    return place_of(score, log(u) / power)


@compiled
def _linearised(found: Clipped, means: _Means, others: _Means) -> float:
    """Return the excess under other means, if the same tokens were clipped."""
    moved = found.beneath * (others.low - means.low)
    return found.excess + moved + found.beyond * (others.high - means.high)


@compiled
def _root(
    score: Score, power: float, a: float, b: float, u: float, found: Clipped, start: _Means
) -> float:
    """Return the root of the excess between a and b, if the same tokens were clipped as at u.

    Newton's method, safeguarded by bisection.
    """
    excess, means = found.excess, start
    tolerance = max(0.01 * excess**2, 0.1 * EXCESS_TOLERANCE)
    for _ in range(30):
        slope = found.beneath * means.low_rate + found.beyond * means.high_rate
        slope *= exp(log(u) / power) / (power * u)
        near = u - excess / slope if slope > 0.0 else b
        u = near if a < near < b else 0.5 * (a + b)
        means = _means(score, log(u) / power)
        excess = _linearised(found, start, means)
        if abs(excess) <= tolerance:
            break
        if excess < 0.0:
            a = u
        else:
            b = u
    return u


class ScoreSplit(NamedTuple):
    """The place where a score is cut in two, and how tokens share the slices.

    Attributes
    ----------
    cell, offset : int, float
        The place; see `slices`.
    below, above : float
        Masses of the score below and above the place.
    low, high : float
        Mean densities of the win below and above; 1 if tokens cannot be distinguished.
    up, down : float
        See `otlp.numerics.two_slice.balance`.
    """

    cell: int
    offset: float
    below: float
    above: float
    low: float
    high: float
    up: float
    down: float


@compiled
def split(score: Score, weight: float, p: FloatArray, q: FloatArray) -> ScoreSplit:
    """Cut the score of a slot that is filled by a draw from q; parameters as in `threshold`."""
    if score.wins.size == 1 and score.powers.prod() == 1.0 and score.left[-1, 0] == -inf:
        # The distribution of the win is F, so tokens cannot be distinguished.
        return ScoreSplit(0, -inf, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    cell, offset = threshold(score, weight, p, q)
    below, above, won_below, won_above = slices(score, cell, offset)
    if below <= 0.0 or above <= 0.0:
        return ScoreSplit(cell, offset, below, above, 1.0, 1.0, 1.0, 1.0)
    low, high = won_below / below, min(won_above / above, LARGEST_MEAN)
    if high - low < EQUAL_MEANS:
        return ScoreSplit(cell, offset, below, above, 1.0, 1.0, 1.0, 1.0)
    up, down = balance(weight, p, q, below, above, low, high)
    return ScoreSplit(cell, offset, below, above, low, high, up, down)


@compiled
def child_score(
    score: Score, found: ScoreSplit, wanted: float, q: float
) -> tuple[Score, float, float]:
    """Return score and weight of a child, and the largest value of its score (-inf: never wins).

    Parameters
    ----------
    score, found : Score, ScoreSplit
        Score of the slot that the child fills, and its `split`.
    wanted, q : float
        Mass that the child wants, and its draft probability, as in `split`.
    """
    if found.low < found.high:
        lower, upper = shares(wanted, q, found.low, found.high, found.up, found.down)
        lower, upper = lower if lower > NEGLIGIBLE else 0.0, upper if upper > NEGLIGIBLE else 0.0
        q *= lower * found.low + upper * found.high
        if lower * found.low + upper * found.high <= NEGLIGIBLE:
            return score, 0.0, -inf
        lower, upper = lower / found.below, upper / found.above
        bottom = exp(score.left[-1, 0]) * lower
        score = sliced(score, found.cell, found.offset, bottom, lower, upper)
    return score, 1.0 if wanted >= q else wanted / q, float(score.edges[-1])
