"""Probability that a group of independent scores has the best score, by an exact quadrature.

Every score is uniform on each of a few cells, which are adjacent intervals shared by all scores.
Within a cell the distribution functions are linear, so the density of the best score is a
polynomial, which a Gauss-Legendre rule integrates exactly.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from otlp.distribution import FloatArray, IntArray, frozen
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope

END = 2**62
"""Sentinel after the last cell of each group."""

EXACT_SIZES = 64
"""Number of nodes up to which rules of every size are built.  Larger rules have a power of two of
nodes, because building a rule costs the cube of its size."""


def best_of(counts: IntArray, offsets: IntArray, cells: IntArray, mass: FloatArray) -> FloatArray:
    """Return the probability that the best of all scores belongs to each group.

    Parameters
    ----------
    counts : ndarray, shape (G,)
        Number of independent scores of each group.
    offsets : ndarray, shape (G + 1,)
        Group g has the entries ``offsets[g]`` to ``offsets[g + 1]`` of `cells` and `mass`.
    cells : ndarray, shape (nnz,)
        Cell numbers of each group, ascending, followed by `END`.
    mass : ndarray, shape (nnz,)
        Probability of each cell; those of a group sum to one, and that of `END` is 0.

    Returns
    -------
    ndarray, shape (G,)
        O(G) for each cell with scores of one group only, O(G K) for a cell with K scores.
    """
    # Python's sum is faster than NumPy's for a few numbers.
    rules = _gauss_rules((sum(counts.tolist()) + 1) // 2)
    return _best_of(counts, offsets, cells, mass, *rules)


@compiled
def _best_of(
    counts: IntArray,
    offsets: IntArray,
    cells: IntArray,
    mass: FloatArray,
    sizes: IntArray,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Process the cells from low to high; see `best_of`."""
    groups = counts.size
    chances, below, at = np.zeros(groups), np.zeros(groups), offsets[:-1].copy()
    while True:
        here = beyond = END
        for j in range(groups):
            here = min(here, cells[at[j]])
        if here == END:
            return chances
        degree, rest, only = 0, 1.0, 0
        for j in range(groups):
            if cells[at[j]] == here:
                degree += counts[j]
                only = j
            else:
                rest *= below[j] ** counts[j]
                beyond = min(beyond, cells[at[j]])
        if degree == counts[only]:
            # No other group scores before `beyond`, so one difference of powers covers all cells
            # up to there.
            rise = 0.0
            while cells[at[only]] < beyond:
                rise += mass[at[only]]
                at[only] += 1
            reached = below[only] + rise
            chances[only] += rest * rise * power_slope(below[only], reached, counts[only])
            below[only] = reached
            continue
        rule = np.searchsorted(sizes, (degree + 1) // 2)
        for node in range(sizes[rule]):
            x, density = nodes[rule, node], rest * weights[rule, node]
            for j in range(groups):
                if cells[at[j]] == here:
                    density *= (below[j] + x * mass[at[j]]) ** counts[j]
            for j in range(groups):
                rise = mass[at[j]]
                if cells[at[j]] == here and rise > 0.0:
                    chances[j] += density * counts[j] * rise / (below[j] + x * rise)
        for j in range(groups):
            if cells[at[j]] == here:
                below[j] += mass[at[j]]
                at[j] += 1


@lru_cache(maxsize=16)
def _gauss_rules(largest: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return sizes, nodes and weights of Gauss-Legendre rules on [0, 1], one rule per row."""
    sizes = list(range(1, min(largest, EXACT_SIZES) + 1))
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    nodes, weights = np.zeros((2, len(sizes), sizes[-1]))
    for row, size in enumerate(sizes):
        nodes[row, :size], weights[row, :size] = gauss_rule(size)
    return np.array(sizes, dtype=np.int64), nodes, weights


@cache
def gauss_rule(size: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights on [0, 1], exact for polynomials of degree below ``2 * size``."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return frozen(0.5 * (nodes + 1.0)), frozen(0.5 * weights)
