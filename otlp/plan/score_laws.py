"""Score laws: how each token draws a score such that the score of a random draft is uniform.

Groups of tokens lie side by side on [0, 1], each on a *cell* as long as its draft probability.  A
token that drew its score from its own cell alone would make the scores uniform; a *swap* lets two
groups send equal masses of each other's cell, which keeps them uniform.  With swaps, the mean of
W = n U^(n-1), which decides how often a token has the best of n scores, can be set for every token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled

__all__ = ["IndexArray", "ScoreLaws", "accumulate", "cell_means", "realised_law"]

IndexArray = npt.NDArray[np.int32]

BLOCK = 64
"""Terms after which a running sum hands its rounding error on."""


@dataclass(frozen=True, eq=False)
class ScoreLaws:
    """The law of the score of every token, for G groups of tokens and T swaps.

    A token of group g scores uniformly on a cell: on its own, or, for every swap of g, with that
    swap's share, on its partner's.

    Attributes
    ----------
    group : ndarray, shape (V,), int32
        Group of each token; of no meaning for tokens that are never drafted.
    edges : ndarray, shape (G + 1,)
        Cell g is ``edges[g]`` to ``edges[g + 1]``.
    low, high : ndarray, shape (T,), int32
        The two groups of each swap, low < high; both ascend, and no group is in both.
    low_share, high_share : ndarray, shape (T,)
        Share of the law of group `low` that lies on the cell of `high`, and the other way
        round, each summed over the swaps of its group so far.
    """

    group: IndexArray
    edges: FloatArray
    low: IndexArray
    high: IndexArray
    low_share: FloatArray
    high_share: FloatArray


@compiled(error_model="numpy")
def accumulate(values: FloatArray) -> None:
    """Replace values by their running sums, each right to a few units in the last place.

    The running sum of a block starts from the rounding error of the sum before it, so errors do
    not grow with the length, and for values >= 0 the sums ascend.
    """
    base, local = 0.0, 0.0
    for k in range(values.size):
        local += values[k]
        total = base + local
        values[k] = total
        if k % BLOCK == BLOCK - 1:
            local -= total - base
            base = total


@compiled(error_model="numpy")
def cell_means(edges: FloatArray, n: int, means: FloatArray) -> None:
    """Write the mean of n u^(n-1) over each cell: (b^n - a^n) / (b - a) without cancellation.

    The sum of a^i b^(n-1-i) over i, doubled in length bit by bit of n: S_2m = S_m (a^m + b^m) and
    S_(m+1) = b S_m + a^m.  O(G log n), positive terms only.
    """
    count, top = edges.size - 1, 1
    while 2 * top <= n:
        top *= 2
    a_power, b_power = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        a, b, mean = edges[start:], edges[start + 1 :], means[start:]
        for j in range(size):
            a_power[j], b_power[j], mean[j] = a[j], b[j], 1.0
        bit = top // 2
        while bit > 0:
            for j in range(size):
                mean[j] *= a_power[j] + b_power[j]
                a_power[j] *= a_power[j]
                b_power[j] *= b_power[j]
            if n & bit:
                for j in range(size):
                    mean[j] = mean[j] * b[j] + a_power[j]
                    a_power[j] *= a[j]
                    b_power[j] *= b[j]
            bit //= 2


@compiled(error_model="numpy")
def realised_law(
    group: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
    draft: FloatArray,
    count: int,
    n: int,
) -> FloatArray:
    """Law of the token with the best of n scores, from the swaps and the draft alone.

    The cells are not taken at their word: the mass on each is added up from the laws, so the
    result is right even if the scores are not uniform.

    Parameters
    ----------
    group, low, high, low_share, high_share
        As in `ScoreLaws`.
    draft : ndarray, shape (V,)
        The draft distribution q.
    count : int
        Number of groups G.
    n : int
        Number of drafts.

    Returns
    -------
    ndarray, shape (V,)
        Zero where the draft is; O(V + T + G log n).
    """
    # The arrays change their meaning on the way: fresh memory costs more than the arithmetic.
    mass, edges = np.zeros(count), np.zeros(count + 1)
    held = edges[1:]
    for i in range(draft.size):
        old, own = mass[group[i]], draft[i]
        total = old + own
        part = total - old
        mass[group[i]] = total
        held[group[i]] += (old - (total - part)) + (own - part)  # what rounding lost
    for g in range(count):
        mass[g] += held[g]
        held[g] = mass[g]
    last_a, last_b, sum_a, sum_b = -1, -1, 0.0, 0.0
    for t in range(low.size):
        a, b = low[t], high[t]
        up = mass[a] * (low_share[t] - (sum_a if a == last_a else 0.0))
        down = mass[b] * (high_share[t] - (sum_b if b == last_b else 0.0))
        held[a] += down - up
        held[b] += up - down
        last_a, last_b, sum_a, sum_b = a, b, low_share[t], high_share[t]
    accumulate(held)
    mean = np.empty(count)
    cell_means(edges, n, mean)
    chance = mass
    for g in range(count):
        chance[g] = mean[g]
    last_a, last_b = -1, -1
    for t in range(low.size):
        a, b = low[t], high[t]
        rise = mean[b] - mean[a]
        chance[a] += (low_share[t] - (sum_a if a == last_a else 0.0)) * rise
        chance[b] -= (high_share[t] - (sum_b if b == last_b else 0.0)) * rise
        last_a, last_b, sum_a, sum_b = a, b, low_share[t], high_share[t]
    law = np.empty(draft.size)
    for i in range(draft.size):
        law[i] = draft[i] * chance[group[i]]
    return law
