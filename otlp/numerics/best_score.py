"""Probability that each of several independent scores is the largest, by integrals over cells.

The integrand is the density of one score times the distribution functions of all others.  The
integration variable is the score with the smallest powers: as functions of it the others are
smooth for any powers, and polynomials if all powers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, inf, log
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.numerics.score_chains import Score, chain, inverse, log_subtract, move

NODES = 10
"""Number of nodes of a quadrature rule."""
SUM_ERROR, LAST_COEFFICIENT, NO_CHANCE = 1e-13, 1e-9, 1e-17
"""Tolerance of the sum of the chances, maximum of the last Legendre coefficients of a density, and
probability that is negligible."""
DEEPEST, MOST_HALVINGS = 100, 2000
"""Maximum number of halvings of a part, and of a cell."""


def best_score(scores: Sequence[Score]) -> FloatArray:
    """Return the probability that each of several independent scores is the largest, shape (S,).

    Notes
    -----
    Gauss-Legendre rules of ten nodes on parts of each cell.  Parts are halved until the densities
    are smooth and the chances sum to the rise of the product of all F.  Most cells need one part.
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
    """Return nodes on [0, 1], and weights of the integral and the last Legendre coefficients."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    rows = [0.5 * w]
    for degree in (NODES - 2, NODES - 1):
        polynomial = np.polynomial.legendre.Legendre.basis(degree)
        rows.append((degree + 0.5) * w * polynomial(x))
    return 0.5 * (x + 1.0), np.array(rows)


class _Active(NamedTuple):
    """Scores with a density in a cell: indices, powers, slopes, and chain values at its start.

    The first `size` rows are in use; row `slowest` has the smallest powers.
    """

    size: int
    slowest: int
    which: IntArray
    powers: FloatArray
    slopes: FloatArray
    base: FloatArray


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
    """Integrate cell by cell over the common grid; see `best_score`."""
    count, links = powers.shape
    chances = np.zeros(count)
    which, at = np.empty(count, np.int64), np.zeros(count, np.int64)
    power, slope = np.empty((count, links)), np.empty((count, links))
    begin = np.empty((count, links + 1))
    for cell in range(grid.size - 1):
        a, width = grid[cell], log_subtract(grid[cell + 1], grid[cell])
        if width == -inf:
            continue
        rest, size, slowest, least = 1.0, 0, 0, inf
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
            offset = log_subtract(a, own) if a > own else -inf
            which[size] = s
            for k in range(links):  # Assigning rows would take seconds to compile.
                power[size, k], slope[size, k] = powers[s, k], slopes[s, i, k]
            move(left[s, i], slope[size], power[size], offset, begin[size])
            if powers[s].prod() < least:
                slowest, least = size, powers[s].prod()
            size += 1
        if size == 0 or rest == 0.0:
            continue
        if size == 1:
            chances[which[0]] += rest * exp(chain(begin[0], slope[0], power[0], width)[0])
            continue
        active = _Active(size, slowest, which, power, slope, begin)
        _add_cell(active, width, rest, nodes, weights, chances)
    return chances


@compiled
def _add_cell(
    active: _Active,
    width: float,
    rest: float,
    nodes: FloatArray,
    weights: FloatArray,
    chances: FloatArray,
) -> None:
    """Add the contribution of one cell to the chances, halving parts until they are smooth.

    `rest` is the probability that the scores without a density in this cell lie below it.
    """
    count, slowest, which, powers, slopes, begin = active
    base = np.empty_like(begin)
    part = _Active(count, slowest, which, powers, slopes, base)
    found = np.empty((weights.shape[0], count))
    bottom = 1.0
    for k in range(count):
        bottom *= exp(begin[k, -1])
    # Of each part: logarithms of its start and width, and the product of all F at both ends.
    parts = np.empty((DEEPEST + 2, 4))
    _write(parts, 0, -inf, width, bottom, _product(active, width))
    size, halved = 1, 0
    while size > 0:
        size -= 1
        low, width, bottom, top = parts[size]
        for k in range(count):
            move(begin[k], slopes[k], powers[k], low, base[k])
        height = chain(base[slowest], slopes[slowest], powers[slowest], width)[0]
        _integrate(part, height, nodes, weights, found)
        gain, integral, last = top - bottom, 0.0, 0.0
        for k in range(count):
            integral += found[0, k]
            for row in range(1, weights.shape[0]):
                last = max(last, abs(found[row, k]))
        if (
            (abs(integral - gain) <= SUM_ERROR * (gain + 0.01) and last <= LAST_COEFFICIENT)
            or rest * gain <= NO_CHANCE
            or size == DEEPEST
            or halved == MOST_HALVINGS
        ):
            for k in range(count):
                chances[which[k]] += rest * found[0, k]
            continue
        half = inverse(base[slowest], slopes[slowest], powers[slowest], height - log(2.0))
        middle = _product(part, half)
        _write(parts, size, np.logaddexp(low, half), log_subtract(width, half), middle, top)
        _write(parts, size + 1, low, half, bottom, middle)
        size += 2
        halved += 1


@compiled
def _write(
    parts: FloatArray, row: int, low: float, width: float, bottom: float, top: float
) -> None:
    """Overwrite a row; assigning a tuple would take seconds to compile."""
    own = parts[row]
    own[0], own[1], own[2], own[3] = low, width, bottom, top


@compiled
def _product(active: _Active, width: float) -> float:
    """Return the product of all F after a rise of z by e^width."""
    product = 1.0
    for k in range(active.size):
        base = active.base[k]
        product *= exp(base[-1]) + exp(chain(base, active.slopes[k], active.powers[k], width)[0])
    return product


@compiled
def _integrate(
    part: _Active, height: float, nodes: FloatArray, weights: FloatArray, found: FloatArray
) -> None:
    """Write the integral and the last Legendre coefficients of each density over one part.

    The slowest score rises by e^height over the part.
    """
    count, slowest, _, powers, slopes, base = part
    density = np.empty(count)
    found[:] = 0.0
    for node in range(nodes.size):
        place = inverse(base[slowest], slopes[slowest], powers[slowest], height + log(nodes[node]))
        product, slowest_rate = 1.0, 1.0
        for k in range(count):
            rise, rate = chain(base[k], slopes[k], powers[k], place)
            level = exp(base[k, -1]) + exp(rise)
            product *= level
            density[k] = exp(rise) * rate / level if level > 0.0 else 0.0
            if k == slowest:
                slowest_rate = nodes[node] * rate
        for row in range(weights.shape[0]):
            for k in range(count):
                found[row, k] += weights[row, node] * product / slowest_rate * density[k]
