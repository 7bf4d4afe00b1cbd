"""Scores whose distribution functions are chains of powers and affine maps, cell by cell.

A score is known by its distribution function F and by the law of its value given that it wins,
both over one coordinate z in [0, 1].  On a few cells of z the law of the win is uniform, and F is
a chain: power, affine map, power, affine map.  All is kept in logarithms, and each link of a chain
as its value at the left end of the cell and its rise from there, so that nothing cancels where F
is tiny, or 0, or its slope infinite.  Below its first cell F is constant: a score that never wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, expm1, inf, log, log1p
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.numerics.two_slice import (
    Clipped,
    balance,
    clipped,
    clipped_from_below,
    modelled,
    wanted_ratios,
)

FLAT = 1e-12
"""How near to one counts as one: means of the slices."""
SETTLED = 1e-10
"""How well the threshold is solved for; validity does not depend on it."""
START = 0.75
"""Where the place of a cut is looked for first."""
FAR = 1e300
"""A mean density that is too large to be known; nothing is lost where thresholds take it so."""
THIN = 1e-9
"""Part of a cell that is too thin to be cut off."""
NODES = 10
"""Of a quadrature rule."""
EXACT, SMOOTH, NOTHING = 1e-13, 1e-9, 1e-17
"""How well chances sum up, how large the last Legendre coefficients of a density may be, and what
is as good as no chance."""
DEPTH, LONGEST = 100, 2000
"""Halvings of a part, and of a cell, at most."""


class Score(NamedTuple):
    """A score in m links and c cells.

    Attributes
    ----------
    edges : ndarray, shape (c + 1,)
        Logarithms of the ends of the cells, ascending; the first may be -inf.
    widths : ndarray, shape (c,)
        Logarithms of their widths.
    wins : ndarray, shape (c,)
        Law of the cell that the score is in, given that it wins.
    masses : ndarray, shape (c,)
        Rise of F over each cell.
    powers : ndarray, shape (m,)
        Exponent of each link.
    left : ndarray, shape (m + 1, c)
        Logarithms of z, and of the chain after each link, at the left ends.
    slopes : ndarray, shape (m, c)
        Logarithms of the slopes of the affine maps after each power.
    """

    edges: FloatArray
    widths: FloatArray
    wins: FloatArray
    masses: FloatArray
    powers: FloatArray
    left: FloatArray
    slopes: FloatArray


def root_score() -> Score:
    """The largest of all scores: F(z) = z, and its law given that it wins is uniform."""
    one, none = np.ones(1), np.zeros(0)
    return Score(
        np.array([-inf, 0.0]), np.zeros(1), one, one, none, np.full((1, 1), -inf), np.zeros((0, 1))
    )


@compiled
def _log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    return high + log1p(exp(low - high)) if high > -inf else -inf


@compiled
def _log_subtract(a: float, b: float) -> float:
    """log(e^a - e^b) for a >= b; beside a far smaller b nothing of a is lost."""
    if b == -inf or a - b > 1.0:
        return a + log1p(-exp(b - a))
    return b + log(expm1(a - b)) if a > b else -inf


@compiled
def _power_rise(base: float, rise: float, power: float) -> tuple[float, float]:
    """Logarithm of (e^base + e^rise)^h - e^(h base), and its derivative by the rise's logarithm."""
    if power == 1.0:
        return rise, 1.0
    if base == -inf or rise == -inf:
        return power * rise, power
    x = rise - base
    if x + max(log(power), 0.0) < -36.0:
        return power * base + log(power) + x, 1.0
    above = log1p(exp(-abs(x)))
    y = power * (max(x, 0.0) + above)
    share = 1.0 / (1.0 + exp(-x)) if x < 700.0 else 1.0
    rate = power * share / -expm1(-y)
    if y > 1.0:
        # from the larger of both: next to 1 its logarithm is known best
        return power * (max(base, rise) + above) + log1p(-exp(-y)), rate
    return power * base + log(expm1(y)), rate


@compiled
def _rise(score: Score, cell: int, offset: float) -> float:
    """Logarithm of the rise of F over the first part of a cell, of width e^offset."""
    for j in range(score.powers.size):
        offset = _power_rise(score.left[j, cell], offset, score.powers[j])[0]
        offset += score.slopes[j, cell]
    return offset


@compiled
def powered(score: Score, power: float) -> Score:
    """F to a power h > 0, the share of one of several independent scores whose maximum has F.

    Each wins with the probability that is its share, whatever the largest value.
    """
    links, cells = score.slopes.shape
    if power == 1.0 and links > 0:
        return score
    left, slopes = np.empty((links + 2, cells)), np.zeros((links + 1, cells))
    left[: links + 1], slopes[:links] = score.left, score.slopes
    masses = np.empty(cells)
    for i in range(cells):
        left[links + 1, i] = power * left[links, i] if left[links, i] > -inf else -inf
        rise = _rise(score, i, score.widths[i])
        masses[i] = exp(_power_rise(left[links, i], rise, power)[0])
    powers = np.append(score.powers, power)
    return Score(score.edges, score.widths, score.wins, masses, powers, left, slopes)


@compiled
def slices(score: Score, cell: int, offset: float) -> tuple[float, float, float, float]:
    """Masses of F below and above a place, and of the law of the win.

    The place is e^offset above the left end of a cell; the cell after the last stands for the end.
    """
    below = exp(score.left[-1, 0])
    above = won_below = won_above = 0.0
    for i in range(score.masses.size):
        mass, win = score.masses[i], score.wins[i]
        if i < cell:
            below += mass
            won_below += win
        elif i > cell:
            above += mass
            won_above += win
        else:
            part = min(exp(_rise(score, i, offset)), mass)
            won = win * min(exp(offset - score.widths[i]), 1.0)
            below += part
            above += mass - part
            won_below += won
            won_above += win - won
    return below, above, won_below, won_above


@compiled
def _cell(score: Score, log_z: float) -> tuple[int, float]:
    """Cell, and logarithm of the place in it."""
    cells = score.masses.size
    if log_z >= score.edges[cells]:
        return cells, -inf
    cell = 0
    while cell < cells - 1 and score.edges[cell + 1] <= log_z:
        cell += 1
    start = score.edges[cell]
    return cell, _log_subtract(log_z, start) if log_z > start else -inf


@compiled
def _place(score: Score, log_z: float) -> tuple[int, float]:
    """Cell, and logarithm of the place in it; thin parts of cells are no place."""
    cell, offset = _cell(score, log_z)
    if offset == -inf:
        return cell, offset
    won = exp(offset - score.widths[cell])
    part = exp(_rise(score, cell, offset)) / score.masses[cell]
    if max(won, part) < THIN:
        return cell, -inf
    if min(won, part) > 1.0 - THIN:
        return cell + 1, -inf
    return cell, offset


@compiled
def win_place(score: Score, mass: float) -> tuple[int, float]:
    """Place that so much of the law of the win lies below."""
    cells = score.wins.size
    for i in range(cells):
        if mass < score.wins[i]:
            offset = score.widths[i] + log(mass / score.wins[i]) if mass > 0.0 else -inf
            # a place that cannot be told from the end is the end
            return (i, offset) if offset < score.widths[i] else (i + 1, -inf)
        mass -= score.wins[i]
    return cells, -inf


class _Means(NamedTuple):
    """Mean density of the win over F, below and above a place z, and what they rise by with z.

    Where a side is empty its mean is the limit, and does not rise.
    """

    low: float
    high: float
    low_rate: float
    high_rate: float


@compiled
def _means(score: Score, log_z: float) -> _Means:
    cell, offset = _cell(score, log_z)
    below = exp(score.left[-1, 0])
    above = won_below = won_above = rise_rate = win_rate = 0.0
    for i in range(score.masses.size):
        mass, win = score.masses[i], score.wins[i]
        if i < cell:
            below += mass
            won_below += win
            continue
        if i == cell and offset > -inf:
            width, won = exp(offset), win * min(exp(offset - score.widths[i]), 1.0)
            part, rate = _chained(score, i, offset)
            part = min(part, mass)
            if width > 0.0:
                rise_rate, win_rate = part * rate / width, won / width
            below += part
            won_below += won
            mass -= part
            win -= won
        above += mass
        won_above += win
    low = won_below / below if below > 0.0 else 0.0
    low_rate = (win_rate - low * rise_rate) / below if below > 0.0 else 0.0
    if above > 0.0:
        high = min(won_above / above, FAR)
        return _Means(low, high, low_rate, (high * rise_rate - win_rate) / above)
    last = score.masses.size - 1
    rise, rate = _chained(score, last, score.widths[last])
    rise *= rate
    return _Means(low, score.wins[last] / rise if rise > 0.0 else FAR, low_rate, 0.0)


@compiled
def _chained(score: Score, cell: int, offset: float) -> tuple[float, float]:
    """Rise of F over the first part of a cell, and its derivative, both by logarithms."""
    rate = 1.0
    for j in range(score.powers.size):
        offset, by = _power_rise(score.left[j, cell], offset, score.powers[j])
        offset += score.slopes[j, cell]
        rate *= by
    return exp(offset), rate


@compiled
def threshold(score: Score, weight: float, p: FloatArray, q: FloatArray) -> tuple[int, float]:
    """Solve sum_x min(max(w p, low q), high q) = 1 for the place that the slices are cut at.

    Parameters
    ----------
    score : Score
        Of a slot that is filled by a draw from q.
    weight, p, q : float, ndarray, ndarray
        The token x wants the mass w p_x; shape (V,).

    Returns
    -------
    cell, offset : int, float
        See `slices`.

    Notes
    -----
    The sum rises with the place.  It is solved for in u = z^h, h the product of all powers, in
    which an unskewed score is uniform: each pass over the tokens tells which of them are clipped,
    and where the excess would vanish if these stayed the same is found by Newton's steps without a
    look at them; a bisection follows whenever a pass has not halved the excess.  Where all places
    in an interval fit, its middle is taken.  Some 6 passes over the vocabulary.
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
        # next to the end what lies above would be rounding
        means = _means(score, log(u) / power) if u < b else at_b
        found = clipped(weight, p, q, means.low, means.high)
        if abs(found.excess) <= SETTLED or b - a <= SETTLED * b:
            break
        if found.excess < 0.0:
            a, at_a = u, means
        else:
            b, at_b, seen_end = u, means, True
        solvable = _modelled(found, means, at_a) < 0.0 < _modelled(found, means, at_b)
        if solvable and abs(found.excess) <= 0.5 * before:
            u = _vanishing(score, power, a, b, u, found, means)
        elif found.excess < 0.0 and not seen_end:
            # a path that the target hardly wants: the place is near the end, or the end
            u, seen_end = b, True
        else:
            u = 0.5 * (a + b)
        before = abs(found.excess)
    if clipped_from_below(weight, p, q, means.low) <= SETTLED:
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
    return _place(score, log(u) / power)


@compiled
def _modelled(found: Clipped, means: _Means, others: _Means) -> float:
    return modelled(found, means.low, means.high, others.low, others.high)


@compiled
def _vanishing(
    score: Score, power: float, a: float, b: float, u: float, found: Clipped, start: _Means
) -> float:
    """The place between a and b without an excess, if no other tokens were clipped than at u.

    Newton's steps, or to the middle where they would leave the bracket.
    """
    excess, means = found.excess, start
    settled = max(0.01 * excess**2, 0.1 * SETTLED)
    for _ in range(30):
        slope = found.beneath * means.low_rate + found.beyond * means.high_rate
        slope *= exp(log(u) / power) / (power * u)
        near = u - excess / slope if slope > 0.0 else b
        u = near if a < near < b else 0.5 * (a + b)
        means = _means(score, log(u) / power)
        excess = _modelled(found, start, means)
        if abs(excess) <= settled:
            break
        if excess < 0.0:
            a = u
        else:
            b = u
    return u


class ScoreSplit(NamedTuple):
    """Where a score is cut in two, and how tokens share the slices.

    Attributes
    ----------
    cell, offset : int, float
        The place; see `slices`.
    below, above : float
        Masses of the score on both sides.
    low, high : float
        Mean densities of its win there; 1 where tokens are not told apart.
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
    """Cut the score of a slot that is filled by a draw from q; arguments as in `threshold`."""
    if score.wins.size == 1 and score.powers.prod() == 1.0 and score.left[-1, 0] == -inf:
        # the law of the win is F: tokens cannot be told apart
        return ScoreSplit(0, -inf, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    cell, offset = threshold(score, weight, p, q)
    below, above, won_below, won_above = slices(score, cell, offset)
    if below <= 0.0 or above <= 0.0:
        return ScoreSplit(cell, offset, below, above, 1.0, 1.0, 1.0, 1.0)
    low, high = won_below / below, min(won_above / above, FAR)
    if high - low < FLAT:
        return ScoreSplit(cell, offset, below, above, 1.0, 1.0, 1.0, 1.0)
    up, down = balance(weight, p, q, below, above, low, high)
    return ScoreSplit(cell, offset, below, above, low, high, up, down)


@compiled
def sliced(
    score: Score, cell: int, offset: float, bottom: float, lower: float, upper: float
) -> Score:
    """Cut F at a place, scale its rises below and above it, and let it start at `bottom`.

    A slice that is scaled by 0 is left out.  The law of the win is scaled alike and normalised.
    """
    if score.powers.size == 0:
        score = powered(score, 1.0)
    links, cells = score.slopes.shape
    first = 0 if lower > 0.0 else cell
    last = cells if upper > 0.0 else min(cell + (1 if offset > -inf else 0), cells)
    split = offset > -inf and lower > 0.0 and upper > 0.0
    size = last - first + (1 if split else 0)
    edges, widths, wins, masses = np.empty(size + 1), np.empty(size), np.empty(size), np.empty(size)
    left, slopes = np.empty((links + 1, size)), np.empty((links, size))
    at = 0
    for i in range(first, last):
        for part in range(2):
            # part 0 lies below the place, part 1 above
            if i < cell:
                takes = part == 0
            elif i > cell or offset == -inf:
                takes = part == 1
            else:
                takes = (lower if part == 0 else upper) > 0.0
            if not takes:
                continue
            factor = upper if part else lower
            cut = i == cell and offset > -inf
            share = exp(offset - score.widths[i]) if cut else 0.0
            rise = offset
            for j in range(links + 1):
                base = score.left[j, i]
                left[j, at] = _log_add(base, rise) if cut and part else base
                if j < links:
                    slopes[j, at] = score.slopes[j, i]
                    if cut:
                        rise = _power_rise(base, rise, score.powers[j])[0] + score.slopes[j, i]
            edges[at] = left[0, at]
            edges[at + 1] = score.edges[i + 1]
            if cut and part == 0:
                edges[at + 1] = _log_add(score.edges[i], offset)
                widths[at], wins[at] = offset, factor * score.wins[i] * share
                masses[at] = factor * exp(rise)
            elif cut:
                widths[at] = score.widths[i] + log1p(-min(share, 1.0))
                wins[at] = factor * score.wins[i] * (1.0 - share)
                span = widths[at]
                for j in range(links):
                    span = _power_rise(left[j, at], span, score.powers[j])[0] + slopes[j, at]
                masses[at] = factor * exp(span)
            else:
                widths[at], wins[at] = score.widths[i], factor * score.wins[i]
                masses[at] = factor * score.masses[i]
            slopes[links - 1, at] += log(factor)
            at += 1
    for i in range(size):
        left[links, i] = log(bottom) if bottom > 0.0 else -inf
        bottom += masses[i]
    return Score(edges, widths, wins / wins.sum(), masses, score.powers, left, slopes)


def best_score(scores: Sequence[Score]) -> FloatArray:
    """Probability that each of several independent scores is the largest, shape (S,).

    Notes
    -----
    An integral over each cell of all: of the density of one score times all other F.  It is taken
    over the F whose powers are the smallest: there the others are smooth, however far their powers
    lie apart, and polynomials where all powers are equal.  Gauss-Legendre rules of ten nodes, on
    parts of the cell that are halved until the densities are smooth and the chances sum to the
    rise of the product of all F.  One part is enough for most cells.
    """
    count = len(scores)
    cells = max(score.masses.size for score in scores)
    links = max(score.powers.size for score in scores)
    edges = np.full((count, cells + 1), inf)
    powers, slopes = np.ones((count, links)), np.zeros((count, cells, links))
    left = np.zeros((count, cells, links + 1))
    sizes = np.array([score.masses.size for score in scores])
    for s, score in enumerate(scores):
        m, c = score.slopes.shape
        edges[s, : c + 1] = score.edges
        powers[s, :m], slopes[s, :c, :m] = score.powers, score.slopes.T
        left[s, :c, : m + 1] = score.left.T
        left[s, :c, m + 1 :] = score.left[m][:, None]
    grid = np.unique(edges[edges < inf])
    return _best_score(grid, sizes, edges, powers, left, slopes, *_rule())


@cache
def _rule() -> tuple[FloatArray, FloatArray]:
    """Nodes on [0, 1], and rows of weights: of the integral and the last Legendre coefficients."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    rows = [0.5 * w]
    for degree in (NODES - 2, NODES - 1):
        polynomial = np.polynomial.legendre.Legendre.basis(degree)
        rows.append((degree + 0.5) * w * polynomial(x))
    return 0.5 * (x + 1.0), np.array(rows)


@compiled
def _best_score(
    grid: FloatArray,
    sizes: IntArray,
    edges: FloatArray,
    powers: FloatArray,
    left: FloatArray,
    slopes: FloatArray,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Cell by cell of the common grid; see `best_score`."""
    count, links = powers.shape
    chances = np.zeros(count)
    # those that rise in a cell: which, their powers and slopes, and chains at its left end
    active, at = np.empty(count, np.int64), np.zeros(count, np.int64)
    power, slope = np.empty((count, links)), np.empty((count, links))
    begin, base = np.empty((count, links + 1)), np.empty((count, links + 1))
    density, found = np.empty(count), np.empty((weights.shape[0], count))
    parts = np.empty((DEPTH + 2, 4))
    for cell in range(grid.size - 1):
        a, b = grid[cell], grid[cell + 1]
        width = _log_subtract(b, a)
        if width == -inf:
            continue
        rest, moving, slowest, least = 1.0, 0, 0, inf
        for s in range(count):
            while at[s] < sizes[s] and edges[s, at[s] + 1] <= a:
                at[s] += 1
            i = at[s]
            if i == sizes[s]:
                continue
            own = edges[s, i]
            if a < own:
                rest *= exp(left[s, i, links])
                continue
            offset = -inf
            if a > own:
                offset = _log_subtract(a, own)
            active[moving], power[moving], slope[moving] = s, powers[s], slopes[s, i]
            _move(left[s, i], slope[moving], power[moving], offset, begin[moving])
            if powers[s].prod() < least:
                slowest, least = moving, powers[s].prod()
            moving += 1
        if moving == 0 or rest == 0.0:
            continue
        if moving == 1:
            rise = _chain(begin[0], slope[0], power[0], width)[0]
            chances[active[0]] += rest * exp(rise)
            continue
        # of a part: where it begins, its width, and the product of all F at its ends
        bottom, top = 1.0, 1.0
        for k in range(moving):
            bottom *= exp(begin[k, links])
            top *= exp(begin[k, links]) + exp(_chain(begin[k], slope[k], power[k], width)[0])
        parts[0, 0], parts[0, 1], parts[0, 2], parts[0, 3] = -inf, width, bottom, top
        size, halved = 1, 0
        while size > 0:
            size -= 1
            low, width, bottom, top = parts[size]
            for k in range(moving):
                _move(begin[k], slope[k], power[k], low, base[k])
            height = _chain(base[slowest], slope[slowest], power[slowest], width)[0]
            found[:] = 0.0
            for node in range(nodes.size):
                place = _inverse(
                    base[slowest], slope[slowest], power[slowest], height + log(nodes[node])
                )
                product, pace = 1.0, 1.0
                for k in range(moving):
                    rise, rate = _chain(base[k], slope[k], power[k], place)
                    level = exp(base[k, links]) + exp(rise)
                    product *= level
                    density[k] = exp(rise) * rate / level if level > 0.0 else 0.0
                    if k == slowest:
                        pace = nodes[node] * rate
                for row in range(weights.shape[0]):
                    for k in range(moving):
                        found[row, k] += weights[row, node] * product / pace * density[k]
            gain, total, rough = top - bottom, 0.0, 0.0
            for k in range(moving):
                total += found[0, k]
                for row in range(1, weights.shape[0]):
                    rough = max(rough, abs(found[row, k]))
            if (
                (abs(total - gain) <= EXACT * (gain + 0.01) and rough <= SMOOTH)
                or rest * gain <= NOTHING
                or size == DEPTH
                or halved == LONGEST
            ):
                for k in range(moving):
                    chances[active[k]] += rest * found[0, k]
                continue
            half = _inverse(base[slowest], slope[slowest], power[slowest], height - log(2.0))
            middle = 1.0
            for k in range(moving):
                rise = _chain(base[k], slope[k], power[k], half)[0]
                middle *= exp(base[k, links]) + exp(rise)
            parts[size, 0], parts[size, 1] = _log_add(low, half), _log_subtract(width, half)
            parts[size, 2], parts[size, 3] = middle, top
            parts[size + 1, 0], parts[size + 1, 1] = low, half
            parts[size + 1, 2], parts[size + 1, 3] = bottom, middle
            size += 2
            halved += 1
    return chances


@compiled
def _move(
    base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float, found: FloatArray
) -> None:
    """Write where a chain is after a rise of z by e^rise."""
    for j in range(powers.size):
        found[j] = _log_add(base[j], rise)
        rise = _power_rise(base[j], rise, powers[j])[0] + slopes[j]
    found[powers.size] = _log_add(base[powers.size], rise)


@compiled
def _chain(
    base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float
) -> tuple[float, float]:
    """Logarithm of the rise of F with one of z, and its derivative by that one's."""
    rate = 1.0
    for j in range(powers.size):
        rise, by = _power_rise(base[j], rise, powers[j])
        rise += slopes[j]
        rate *= by
    return rise, rate


@compiled
def _inverse(base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float) -> float:
    """Logarithm of the rise of z that a rise of F takes."""
    for j in range(powers.size - 1, -1, -1):
        rise = _power_rise(powers[j] * base[j], rise - slopes[j], 1.0 / powers[j])[0]
    return rise


@compiled
def drawn(score: Score, uniform: float) -> float:
    """Draw a score by inversion of F, as log z; minus infinity never wins."""
    reached = exp(score.left[-1, 0])
    if uniform < reached:
        return -inf
    last = score.masses.size - 1
    for cell in range(last + 1):
        if uniform < reached + score.masses[cell] or cell == last:
            rise = min(uniform - reached, score.masses[cell])
            offset = log(rise) if rise > 0.0 else -inf
            links = score.powers.size
            offset = _inverse(score.left[:links, cell], score.slopes[:, cell], score.powers, offset)
            return _log_add(score.edges[cell], min(offset, score.widths[cell]))
        reached += score.masses[cell]
    return -inf
