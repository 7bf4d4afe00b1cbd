"""Scores whose distribution functions are chains of powers and affine maps, cell by cell.

A score is known by its distribution function F and by the law of its value given that it wins,
both over one coordinate z in [0, 1].  On a few cells of z the law of the win is uniform, and F is
a chain: power, affine map, power, affine map.  All is kept in logarithms, and each link of a chain
as its value at the left end of the cell and its rise from there, so that nothing cancels where F
is tiny, or 0, or its slope infinite.  Below its first cell F is constant: a score that never wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, inf, log, log1p, pi
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.numerics.two_slice import clipped_from_below, clipped_sum, wanted_ratios

SETTLED = 1e-10
"""How well the threshold is solved for; validity does not depend on it."""
THIN = 1e-9
"""Part of a cell that is too thin to be cut off."""
REACH = 37.0
"""Exponentials of less than minus this are nothing beside 1."""
CAREFUL, FINEST = 0.75, 0.01
"""What the step is made smaller by, since where a singularity lies is an estimate; least step."""


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
def _log_expm1(y: float) -> float:
    """log(e^y - 1) for y > 0."""
    return y + log1p(-exp(-y)) if y > 1.0 else (log(expm1(y)) if y > 0.0 else -inf)


@compiled
def _log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    return high + log1p(exp(low - high)) if high > -inf else -inf


@compiled
def _power_rise(base: float, rise: float, power: float) -> tuple[float, float]:
    """Logarithm of (e^base + e^rise)^h - e^(h base), and its derivative by the rise's logarithm."""
    if power == 1.0:
        return rise, 1.0
    if base == -inf or rise == -inf:
        return power * rise, power
    x = rise - base
    if x < -36.0:
        return power * base + log(power) + x, 1.0
    grown = x + log1p(exp(-x)) if x > 0.0 else log1p(exp(x))
    y = power * grown
    share = 1.0 / (1.0 + exp(-x)) if x < 700.0 else 1.0
    return power * base + _log_expm1(y), power * share / -expm1(-y)


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
def _place(score: Score, log_z: float) -> tuple[int, float]:
    """Cell, and logarithm of the place in it; thin parts of cells are no place."""
    cells = score.masses.size
    if log_z >= score.edges[cells]:
        return cells, -inf
    cell = 0
    while cell < cells - 1 and score.edges[cell + 1] <= log_z:
        cell += 1
    start = score.edges[cell]
    if log_z <= start:
        return cell, -inf
    offset = log_z if start == -inf else start + _log_expm1(log_z - start)
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
            return i, (score.widths[i] + log(mass / score.wins[i]) if mass > 0.0 else -inf)
        mass -= score.wins[i]
    return cells, -inf


@compiled
def _means(score: Score, cell: int, offset: float) -> tuple[float, float]:
    """Mean density of the win over F, below and above a place; limits where a side is empty."""
    below, above, won_below, won_above = slices(score, cell, offset)
    low = won_below / below if below > 0.0 else 0.0
    if above > 0.0:
        return low, won_above / above
    last = score.masses.size - 1
    rate, rise = 1.0, score.widths[last]
    for j in range(score.powers.size):
        rise, slope = _power_rise(score.left[j, last], rise, score.powers[j])
        rise += score.slopes[j, last]
        rate *= slope
    return low, score.wins[last] / (exp(rise) * rate)


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
    which an unskewed score is uniform, by regula falsi (Illinois), with a bisection whenever three
    steps have not halved the bracket.  Where all places in an interval fit, its middle is taken.
    Some 10 passes over the vocabulary.
    """
    power = 1.0
    for h in score.powers:
        power *= h
    a, b = exp(power * score.edges[0]), exp(power * score.edges[-1])
    first, last = a, b
    low, high = _means(score, 0, -inf)
    at_a = clipped_sum(weight, p, q, low, high) - 1.0
    low, high = _means(score, score.masses.size, -inf)
    at_b = clipped_sum(weight, p, q, low, high) - 1.0
    side, width = 0, b - a
    cell, offset = 0, -inf
    for step in range(1, 61):
        bisect = (step % 3 == 0 and b - a > 0.5 * width) or not at_a < 0.0 < at_b
        if step % 3 == 0:
            width = b - a
        u = 0.5 * (a + b) if bisect else a + (b - a) * (at_a / (at_a - at_b))
        cell, offset = _place(score, log(u) / power)
        low, high = _means(score, cell, offset)
        excess = clipped_sum(weight, p, q, low, high) - 1.0
        if abs(excess) <= SETTLED or b - a <= SETTLED * b:
            break
        if excess < 0.0:
            a, at_a = u, excess
            at_b *= 0.5 if side == -1 else 1.0
            side = -1
        else:
            b, at_b = u, excess
            at_a *= 0.5 if side == 1 else 1.0
            side = 1
    if clipped_from_below(weight, p, q, low) <= SETTLED:
        least, most = wanted_ratios(weight, p, q)
        a, b, c, d = first, last, first, last
        for _ in range(50):
            u = 0.5 * (a + b)
            where, so_far = _place(score, log(u) / power)
            if _means(score, where, so_far)[1] >= most:
                b = u
            else:
                a = u
            u = 0.5 * (c + d)
            where, so_far = _place(score, log(u) / power)
            if _means(score, where, so_far)[0] <= least:
                c = u
            else:
                d = u
        if b <= c:
            cell, offset = _place(score, log(0.5 * (b + c)) / power)
    return cell, offset


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
    An integral over each cell of all: of the density of one score times all other F.  Densities
    may be infinite at the left end of a cell, like any small power; with z = a + (b - a) e^-t they
    decay exponentially.  A link (x + e^-ct)^h is singular off the real line, beside the t where
    both terms are equal.  The trapezoidal rule in s, t = log(1 + e^s) over the least decay, takes
    rates that lie far apart alike; its step is that for which the nearest singularity costs
    e^-37.  Some 300 nodes a cell.
    """
    count = len(scores)
    cells = max(score.masses.size for score in scores)
    links = max(score.powers.size for score in scores)
    edges = np.full((count, cells + 1), inf)
    powers, slopes = np.ones((count, links)), np.zeros((count, links, cells))
    left, masses = np.zeros((count, links + 1, cells)), np.zeros((count, cells))
    sizes = np.array([score.masses.size for score in scores])
    for s, score in enumerate(scores):
        m, c = score.slopes.shape
        edges[s, : c + 1], masses[s, :c] = score.edges, score.masses
        powers[s, :m], slopes[s, :m, :c] = score.powers, score.slopes
        left[s, : m + 1, :c] = score.left
        left[s, m + 1 :, :c] = score.left[m]
    grid = np.unique(edges[edges < inf])
    return _best_score(grid, sizes, edges, masses, powers, left, slopes)


@compiled
def _best_score(
    grid: FloatArray,
    sizes: IntArray,
    edges: FloatArray,
    masses: FloatArray,
    powers: FloatArray,
    left: FloatArray,
    slopes: FloatArray,
) -> FloatArray:
    """Cell by cell of the common grid; see `best_score`."""
    count, links = powers.shape
    chances = np.zeros(count)
    base, slope = np.empty((count, links + 1)), np.empty((count, links))
    beside, steep = np.empty((count, links)), np.empty((count, links))
    active, at = np.empty(count, np.int64), np.zeros(count, np.int64)
    level, density = np.empty(count), np.empty(count)
    for cell in range(grid.size - 1):
        a, b = grid[cell], grid[cell + 1]
        width = b + log1p(-exp(a - b))
        if width == -inf:
            continue
        rest, moving, least, common, slowest = 1.0, 0, inf, 0.0, 1.0
        for s in range(count):
            while at[s] < sizes[s] and edges[s, at[s] + 1] <= a:
                at[s] += 1
            i = at[s]
            if i == sizes[s]:
                continue
            if a < edges[s, i]:
                rest *= exp(left[s, links, i])
                continue
            offset = -inf
            if a > edges[s, i]:
                offset = a if edges[s, i] == -inf else edges[s, i] + _log_expm1(a - edges[s, i])
            power, rise = 1.0, width
            for j in range(links + 1):
                base[moving, j] = _log_add(left[s, j, i], offset)
                if j < links:
                    slope[moving, j] = slopes[s, j, i]
                    offset = _power_rise(left[s, j, i], offset, powers[s, j])[0] + slopes[s, j, i]
                    beside[moving, j], steep[moving, j] = -inf, power
                    if base[moving, j] < rise:
                        if base[moving, j] > -inf and powers[s, j] != 1.0:
                            beside[moving, j] = (rise - base[moving, j]) / power
                        power *= powers[s, j]
                    rise = _power_rise(base[moving, j], rise, powers[s, j])[0] + slopes[s, j, i]
            # where all F are 0 at the left end, every term falls with the sum of their powers
            if base[moving, links] == -inf:
                common += power
                least = 0.0
            else:
                least = min(least, power)
            slowest = min(slowest, power)
            active[moving] = s
            moving += 1
        if moving == 0 or rest == 0.0:
            continue
        if moving == 1:
            rise = width
            for j in range(links):
                rise = _power_rise(base[0, j], rise, powers[active[0], j])[0] + slope[0, j]
            chances[active[0]] += rest * exp(rise)
            continue
        strip, decays = 0.5 * pi, least + common
        for k in range(moving):
            for j in range(links):
                if 0.0 < beside[k, j] * decays < REACH:
                    near = (pi / steep[k, j]) * slowest / -expm1(-slowest * beside[k, j])
                    strip = min(strip, near)
        step = max(CAREFUL * 2.0 * pi * strip / REACH, FINEST)
        node = log(slowest) - REACH
        while True:
            decay = log1p(exp(node)) if node < REACH else node
            decay /= slowest
            weight = rest * step / (slowest * (1.0 + exp(-node)))
            node += step
            product = 1.0
            for k in range(moving):
                rise, rate = width - decay, 1.0
                for j in range(links):
                    rise, by = _power_rise(base[k, j], rise, powers[active[k], j])
                    rise += slope[k, j]
                    rate *= by
                level[k] = exp(base[k, links]) + exp(rise)
                density[k] = exp(rise) * rate
                product *= level[k]
            for k in range(moving):
                if level[k] > 0.0:
                    chances[active[k]] += weight * product * (density[k] / level[k])
            if decay * decays > REACH:
                break
    return chances
