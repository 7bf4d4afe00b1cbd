"""Score laws: how each token draws a score such that the score of a random draft is uniform.

Groups of tokens lie side by side on [0, 1], each on a *cell* as long as its draft probability.  A
token that drew its score from its own cell alone would make the scores uniform; a *swap* lets two
groups send equal masses of each other's cell, which keeps them uniform.  With swaps, the mean of
W = n U^(n-1), which decides how often a token has the best of n scores, can be set for every token.

A score is kept as the number of its cell and a place on it: cells of probabilities like 1e-300
would share one floating-point number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slopes
from otlp.numerics.running_sum import accumulate

IndexArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Swaps:
    """The score laws of all tokens, for G groups of tokens and T swaps.

    A token of group g scores uniformly on a cell: on its own, or, for every swap of g, with that
    swap's share, on its partner's.

    Attributes
    ----------
    groups : int
        How many groups there are, G; as many cells, in the same order.
    group : ndarray, shape (V,), int32
        Group of each token; of no meaning for tokens that are never drafted.
    low, high : ndarray, shape (T,), int32
        The two groups of each swap, low < high; both ascend, and no group is in both.
    low_share, high_share : ndarray, shape (T,)
        Share of the scores of group `low` that lies on the cell of `high`, and the other way
        round, each summed over the swaps of its group so far.
    """

    groups: int
    group: IndexArray
    low: IndexArray
    high: IndexArray
    low_share: FloatArray
    high_share: FloatArray


@compiled(error_model="numpy")
def realised_distribution(
    group: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
    draft: FloatArray,
    count: int,
    n: int,
) -> FloatArray:
    """Distribution of the token with the best of n scores, from the swaps and the draft alone.

    The cells are not taken at their word: the mass on each is added up from the swaps, so the
    result is right even if the scores are not uniform.

    Parameters
    ----------
    group, low, high, low_share, high_share
        As in `Swaps`.
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
    power_slopes(edges, n, mean)
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
    selected = np.empty(draft.size)
    for i in range(draft.size):
        selected[i] = draft[i] * chance[group[i]]
    return selected
