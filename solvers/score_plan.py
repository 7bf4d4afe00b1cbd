"""A plan that scores every draft by itself and selects the one with the best score.

A token draws its score such that the score of a random draft is uniform.  Groups of tokens lie
side by side on [0, 1], each on a *cell* as long as its draft probability.  A token that drew its
score from its own cell alone would make the scores uniform; a *swap* lets two groups send equal
masses of each other's cell, which keeps them uniform.  With swaps, the mean of W = n U^(n-1), which
decides how often a token has the best of n scores, can be set for every token.

A score is kept as the number of its cell and a place on it: cells of probabilities like 1e-300
would share one floating-point number.

Given the drafted tokens the scores are independent, and their distribution functions are
piecewise linear, so the chance of each to be the best is a sum of integrals of polynomials.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.numerics.best_of import END, best_of
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slopes
from otlp.numerics.prefix_sums import accumulate
from otlp.plan import SelectionPlan
from otlp.problem import Problem

IndexArray = npt.NDArray[np.int32]


class Swaps(NamedTuple):
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


Laws = tuple[int, IndexArray, IndexArray, IndexArray, FloatArray, FloatArray]
"""The fields of `Swaps`."""


class ScorePlan(SelectionPlan):
    """Select the draft with the best score, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.
    selection_distribution : ndarray, shape (V,)
        The distribution y of the selected token.
    swaps : Swaps
        How each token draws its score.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.

    Notes
    -----
    Selecting costs O(n log T) for T swaps; the exact distribution of a selection, O(n) for each
    cell that some drafted token can score on, and O(n^2) where several can.
    """

    def __init__(self, problem: Problem, selection_distribution: FloatArray, swaps: Swaps) -> None:
        super().__init__(problem, selection_distribution)
        if not isinstance(problem.drafts, IID):
            raise UnsupportedProblemError(
                f"a plan by scores needs i.i.d. drafts, not {problem.drafts!r}"
            )
        self.draft = problem.drafts.draft
        self.swaps = swaps
        self._laws: Laws = swaps[:]  # a plain tuple, which kernels take in half the time

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the selected tokens of valid tuples, shape (m, n) -> (m,); O(n log T) each."""
        return _best_scored(tokens, rng.random((*tokens.shape, 2)), self._laws)

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Distribution of the selected token, exact up to rounding; see `SelectionPlan`."""
        tokens, counts, place, groups, drafted = _distinct(draft_tokens, self.swaps.group)
        chances = best_of(drafted, *_cells(groups, self._laws))
        return tokens, chances[place] * (counts / drafted[place])

    def score_masses(self) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Mass of the drafts that each group of tokens scores on each cell.

        Returns
        -------
        owner, cell : ndarray, shape (G + 2 T,)
            The group, and the cell that it scores on: its own first, then those of the swaps.
        mass : ndarray, shape (G + 2 T,)
            They sum up to one; those on a cell, to the draft probability of its group.
        """
        count, group, low, high, low_share, high_share = self.swaps
        drafted = self.draft > 0.0
        whole = np.bincount(group[drafted], self.draft[drafted], minlength=count)
        up, down = whole[low] * _single(low, low_share), whole[high] * _single(high, high_share)
        own = whole - np.bincount(low, up, count) - np.bincount(high, down, count)
        numbers = np.arange(count, dtype=np.int32)
        return (
            np.concatenate((numbers, low, high)),
            np.concatenate((numbers, high, low)),
            np.concatenate((np.maximum(own, 0.0), up, down)),
        )

    def realised_selection_distribution(self) -> FloatArray:
        """Distribution of the selected token, from the score laws alone; O(V log n)."""
        return _realised_distribution(self._laws, self.draft, self.problem.n)


def _single(owner: IndexArray, share: FloatArray) -> FloatArray:
    """The share of each swap, from their sums over the swaps of a group so far."""
    before = np.where(owner == np.roll(owner, 1), np.roll(share, 1), 0.0)
    before[:1] = 0.0
    return share - before


@compiled
def _distinct(
    draft_tokens: IntArray, group: IndexArray
) -> tuple[IntArray, IntArray, IntArray, IndexArray, IntArray]:
    """Distinct tokens, their counts, their groups' places; distinct groups, their counts."""
    tokens = np.unique(draft_tokens)
    groups = np.unique(group[tokens])
    place = np.searchsorted(groups, group[tokens])
    counts, drafted = np.zeros(tokens.size, np.int64), np.zeros(groups.size, np.int64)
    for at in np.searchsorted(tokens, draft_tokens):
        counts[at] += 1
        drafted[place[at]] += 1
    return tokens, counts, place, groups, drafted


@compiled
def _best_scored(tokens: IntArray, uniform: FloatArray, laws: Laws) -> IntArray:
    """Token with the best score of each row of tokens, from two uniform numbers for each."""
    group = laws[1]
    best = np.empty(tokens.shape[0], np.int64)
    for m in range(tokens.shape[0]):
        highest, farthest = -1, 0.0
        for j in range(tokens.shape[1]):
            token, place = tokens[m, j], uniform[m, j, 1]
            cell = _cell(group[token], uniform[m, j, 0], laws)
            if cell > highest or (cell == highest and place > farthest):
                best[m], highest, farthest = token, cell, place
    return best


@compiled
def _cell(g: int, uniform: float, laws: Laws) -> int:
    """Cell that a score of group g lies on, from a uniform number."""
    _, _, low, high, low_share, high_share = laws
    up = _search(low, low_share, g, uniform)
    if up < low.size and low[up] == g:
        return int(high[up])
    down = _search(high, high_share, g, uniform)
    if down < high.size and high[down] == g:
        return int(low[down])
    return g


@compiled
def _search(owner: IndexArray, share: FloatArray, g: int, least: float) -> int:
    """First swap of group g whose share exceeds `least`, or else the first of a later group."""
    begin, end = 0, owner.size
    while begin < end:
        middle = (begin + end) // 2
        if owner[middle] > g or (owner[middle] == g and share[middle] > least):
            end = middle
        else:
            begin = middle + 1
    return begin


@compiled
def _cells(groups: IndexArray, laws: Laws) -> tuple[IntArray, IntArray, FloatArray]:
    """Cells that each of some groups scores on, and their masses, in rows as `best_of` wants."""
    _, _, low, high, low_share, high_share = laws
    size = groups.size
    begin, end = np.empty(size, np.int64), np.empty(size, np.int64)
    offsets = np.zeros(size + 1, np.int64)
    lower = np.ones(size, np.bool_)
    for j in range(size):
        begin[j] = _search(low, low_share, groups[j], -1.0)
        end[j] = _search(low, low_share, groups[j], np.inf)
        if begin[j] == end[j]:
            lower[j] = False
            begin[j] = _search(high, high_share, groups[j], -1.0)
            end[j] = _search(high, high_share, groups[j], np.inf)
        offsets[j + 1] = offsets[j] + end[j] - begin[j] + 2
    cells, mass = np.full(offsets[size], END), np.zeros(offsets[size])
    for j in range(size):
        partner, share = (high, low_share) if lower[j] else (low, high_share)
        # A swap's partner is later for the lower group and earlier for the higher one, so the
        # group's own cell comes first or last.
        at = offsets[j] + (1 if lower[j] else 0)
        before = 0.0
        for t in range(begin[j], end[j]):
            # `_best_scored` compares with a number below 1: what a share has above is never drawn
            reached = min(1.0, share[t])
            cells[at], mass[at] = partner[t], reached - before
            before = reached
            at += 1
        own = offsets[j] if lower[j] else at
        cells[own], mass[own] = groups[j], 1.0 - before
    return offsets, cells, mass


@compiled(error_model="numpy")
def _realised_distribution(laws: Laws, draft: FloatArray, n: int) -> FloatArray:
    """Distribution of the token with the best of n scores, from the swaps and the draft alone.

    The cells are not taken at their word: the mass on each is added up from the swaps, so the
    result is right even if the scores are not uniform.

    Parameters
    ----------
    laws : tuple
        The fields of `Swaps`.
    draft : ndarray, shape (V,)
        The draft distribution q.
    n : int
        Number of drafts.

    Returns
    -------
    ndarray, shape (V,)
        Zero where the draft is; O(V + T + G log n).
    """
    count, group, low, high, low_share, high_share = laws
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
