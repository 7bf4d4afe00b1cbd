"""Scores whose distribution functions are chains of powers and affine maps, cell by cell.

A score is described by its distribution function F and by the distribution of its value given that
it wins, both over one coordinate z in [0, 1].  On each of a few cells of z the latter is uniform,
and F is a chain: power, affine map, power, affine map.  All values are stored as logarithms, and
each link of a chain as its value at the left end of the cell and its rise from there, so that
nothing cancels if F is tiny or 0, or its slope infinite.  Below the first cell F is constant, and
a score there never wins.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled

NEGLIGIBLE = 1e-15
"""Share of the wins that is treated as zero, since rounding errors are as large."""
THINNEST_PART = 1e-9
"""Least part of a cell that is cut off, relative to the cell."""


class Score(NamedTuple):
    """A score with m links and c cells.

    Attributes
    ----------
    edges : ndarray, shape (c + 1,)
        Logarithms of the ends of the cells, ascending; the first may be -inf.
    widths : ndarray, shape (c,)
        Logarithms of the widths of the cells.
    wins : ndarray, shape (c,)
        Distribution of the cell that contains the score, given that the score wins.
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


@compiled
def root_score() -> Score:
    """Return the largest of all scores: F(z) = z, and uniform given that it wins."""
    edges, widths, one, left = np.empty(2), np.empty(1), np.empty(1), np.empty((1, 1))
    edges[0], edges[1], widths[0], one[0], left[0, 0] = -inf, 0.0, 0.0, 1.0, -inf
    return Score(edges, widths, one, one, np.empty(0), left, np.empty((0, 1)))


@compiled
def log_subtract(a: float, b: float) -> float:
    """Return log(e^a - e^b) for a >= b; exactly a if b is far smaller."""
    if b == -inf or a - b > 1.0:
        return a + log1p(-exp(b - a))
    return b + log(expm1(a - b)) if a > b else -inf


@compiled
def power_rise(base: float, rise: float, power: float) -> tuple[float, float]:
    """Return log((e^base + e^rise)^h - e^(h base)), and its derivative with respect to `rise`."""
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
        # Start from the larger of the two, whose logarithm is the most accurate near 1.
        return power * (max(base, rise) + above) + log1p(-exp(-y)), rate
    return power * base + log(expm1(y)), rate


@compiled
def chain(
    base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float
) -> tuple[float, float]:
    """Return log of the rise of F for a rise of z by e^rise, and its derivative in `rise`.

    `base` holds the logarithms of z, and of the chain after each link, where the rise begins.
    """
    rate = 1.0
    for j in range(powers.size):
        rise, by = power_rise(base[j], rise, powers[j])
        rise += slopes[j]
        rate *= by
    return rise, rate


@compiled
def move(
    base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float, found: FloatArray
) -> None:
    """Write the logarithms of the chain after a rise of z by e^rise."""
    for j in range(powers.size):
        found[j] = np.logaddexp(base[j], rise)
        rise = power_rise(base[j], rise, powers[j])[0] + slopes[j]
    found[powers.size] = np.logaddexp(base[powers.size], rise)


@compiled
def rise_in(score: Score, cell: int, offset: float) -> tuple[float, float]:
    """Return the result of `chain` over the first part of a cell, of width e^offset."""
    return chain(score.left[:, cell], score.slopes[:, cell], score.powers, offset)


@compiled
def inverse(base: FloatArray, slopes: FloatArray, powers: FloatArray, rise: float) -> float:
    """Return the logarithm of the rise of z that produces a rise of F by e^rise."""
    for j in range(powers.size - 1, -1, -1):
        rise = power_rise(powers[j] * base[j], rise - slopes[j], 1.0 / powers[j])[0]
    return rise


@compiled
def powered(score: Score, power: float) -> Score:
    """Return F to a power h > 0, the share of one of several independent scores with maximum F.

    Each of these scores wins with probability equal to its share, whatever the largest value.
    """
    links, cells = score.slopes.shape
    if power == 1.0 and links > 0:
        return score
    left, slopes = np.empty((links + 2, cells)), np.empty((links + 1, cells))
    masses, powers = np.empty(cells), np.empty(links + 1)
    for k in range(links):
        powers[k] = score.powers[k]
    powers[links] = power
    for i in range(cells):
        for k in range(links):  # Assigning slices would take seconds to compile.
            left[k, i], slopes[k, i] = score.left[k, i], score.slopes[k, i]
        left[links, i], slopes[links, i] = score.left[links, i], 0.0
        left[links + 1, i] = power * left[links, i] if left[links, i] > -inf else -inf
        rise = rise_in(score, i, score.widths[i])[0]
        masses[i] = exp(power_rise(left[links, i], rise, power)[0])
    return Score(score.edges, score.widths, score.wins, masses, powers, left, slopes)


@compiled
def slices(score: Score, cell: int, offset: float) -> tuple[float, float, float, float]:
    """Return the masses of F below and above a place, and the masses of the win.

    The place is e^offset above the left end of a cell; `cell` = c, the number of cells, is the end.
    """
    below = exp(score.left[-1, 0])
    above = won_below = won_above = 0.0
    for i in range(score.masses.size):
        mass, win = score.masses[i], score.wins[i]
        part, won = (mass, win) if i < cell else (0.0, 0.0)
        if i == cell:
            part = min(exp(rise_in(score, i, offset)[0]), mass)
            won = win * min(exp(offset - score.widths[i]), 1.0)
        below += part
        above += mass - part
        won_below += won
        won_above += win - won
    return below, above, won_below, won_above


@compiled
def cell_of(score: Score, log_z: float) -> tuple[int, float]:
    """Return the cell that contains z, and the logarithm of the offset in the cell."""
    cells = score.masses.size
    if log_z >= score.edges[cells]:
        return cells, -inf
    cell = 0
    while cell < cells - 1 and score.edges[cell + 1] <= log_z:
        cell += 1
    start = score.edges[cell]
    return cell, log_subtract(log_z, start) if log_z > start else -inf


@compiled
def place_of(score: Score, log_z: float) -> tuple[int, float]:
    """Return the cell and the offset as `cell_of`, but at the end of a cell if a part is thin."""
    cell, offset = cell_of(score, log_z)
    if offset == -inf:
        return cell, offset
    won = exp(offset - score.widths[cell])
    part = exp(rise_in(score, cell, offset)[0]) / score.masses[cell]
    if max(won, part) < THINNEST_PART:
        return cell, -inf
    if min(won, part) > 1.0 - THINNEST_PART:
        return cell + 1, -inf
    return cell, offset


@compiled
def win_quantile(score: Score, mass: float) -> tuple[int, float]:
    """Return the place below which the win has the given mass."""
    cells = score.wins.size
    for i in range(cells):
        if mass < score.wins[i]:
            offset = score.widths[i] + log(mass / score.wins[i]) if mass > 0.0 else -inf
            # An offset equal to the width, up to rounding, is the end of the cell.
            return (i, offset) if offset < score.widths[i] else (i + 1, -inf)
        mass -= score.wins[i]
    return cells, -inf


@compiled
def sliced(
    score: Score, cell: int, offset: float, bottom: float, lower: float, upper: float
) -> Score:
    """Cut F at a place, scale its rises below and above the place, and start it at `bottom`.

    A slice scaled by 0 is left out.  The distribution of the win is scaled alike and normalised.
    """
    if score.powers.size == 0:
        score = powered(score, 1.0)
    links, cells = score.slopes.shape
    cut = offset > -inf
    first = 0 if lower > 0.0 else cell
    last = cells if upper > 0.0 else min(cell + (1 if cut else 0), cells)
    size = last - first + (1 if cut and lower > 0.0 and upper > 0.0 else 0)
    edges, widths, wins, masses = np.empty(size + 1), np.empty(size), np.empty(size), np.empty(size)
    left, slopes = np.empty((links + 1, size)), np.empty((links, size))
    at = 0
    for i in range(first, last):
        inside = cut and i == cell
        for factor, above in ((lower, False), (upper, True)):
            if factor == 0.0 or (not inside and above != (i >= cell)):
                continue
            base, slope, share = score.left[:, i], score.slopes[:, i], 1.0
            for k in range(links):
                left[k, at], slopes[k, at] = base[k], slope[k]
            edges[at + 1], widths[at] = score.edges[i + 1], score.widths[i]
            masses[at] = score.masses[i]
            if inside:
                share = exp(offset - score.widths[i])
                if above:
                    widths[at] += log1p(-min(share, 1.0))
                    share = 1.0 - share
                    move(base, slope, score.powers, offset, left[:, at])
                else:
                    widths[at], edges[at + 1] = offset, np.logaddexp(score.edges[i], offset)
                masses[at] = exp(chain(left[:, at], slope, score.powers, widths[at])[0])
            edges[at] = left[0, at]
            wins[at], masses[at] = factor * score.wins[i] * share, factor * masses[at]
            slopes[links - 1, at] += log(factor)
            at += 1
    for i in range(size):
        left[links, i] = log(bottom) if bottom > 0.0 else -inf
        bottom += masses[i]
    return Score(edges, widths, wins / wins.sum(), masses, score.powers, left, slopes)


@compiled
def drawn(score: Score, uniform: float) -> float:
    """Return a score drawn by inversion of F, as log z; minus infinity never wins."""
    reached, cell, links = exp(score.left[-1, 0]), 0, score.powers.size
    if uniform < reached:
        return -inf
    while cell < score.masses.size - 1 and uniform >= reached + score.masses[cell]:
        reached += score.masses[cell]
        cell += 1
    rise = min(uniform - reached, score.masses[cell])
    offset = log(rise) if rise > 0.0 else -inf
    offset = inverse(score.left[:links, cell], score.slopes[:, cell], score.powers, offset)
    return float(np.logaddexp(score.edges[cell], min(offset, score.widths[cell])))
