"""A plan that scores every draft by itself and selects the one with the best score.

Given the drafted tokens the scores are independent, and their distribution functions are
piecewise linear, so the law of the best is a sum of integrals of polynomials.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.numerics.compiled import compiled
from otlp.plan.score_laws import IndexArray, ScoreLaws, realised_law
from otlp.plan.selection import SelectionPlan
from otlp.problem import Problem

__all__ = ["ScorePlan"]

END = 2**62
"""Stands after the last cell."""


class ScorePlan(SelectionPlan):
    """Select the draft with the best score, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.
    selection_law : ndarray, shape (V,)
        The law y of the selected token.
    laws : ScoreLaws
        How each token draws its score.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.

    Notes
    -----
    Selecting costs O(n log T) for T swaps; the exact law of a selection, O(n) for each cell that
    some drafted token can score on, and O(n^2) where several can.
    """

    def __init__(self, problem: Problem, selection_law: FloatArray, laws: ScoreLaws) -> None:
        super().__init__(problem, selection_law)
        if not isinstance(problem.drafts, IID):
            raise UnsupportedProblemError(
                f"a plan by scores needs i.i.d. drafts, not {problem.drafts!r}"
            )
        self.draft = problem.drafts.draft
        self.laws = laws

    def scores(self, tokens: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the score of each of some drafted tokens, any number; O(log T) each."""
        laws = self.laws
        return _draw(
            tokens,
            rng.random(2 * tokens.size),
            laws.group,
            laws.edges,
            laws.low,
            laws.high,
            laws.low_share,
            laws.high_share,
        )

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Draw the selected token; see `SelectionPlan.select`."""
        return int(draft_tokens[self.scores(draft_tokens, rng).argmax()])

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Law of the selected token, exact up to rounding; see `SelectionPlan.selection`."""
        laws = self.laws
        tokens, counts, place, groups, drafted = _distinct(draft_tokens, laws.group)
        rows = _steps(groups, laws.low, laws.high, laws.low_share, laws.high_share)
        chances = _chances(drafted, *rows, *_gauss_rules((draft_tokens.size + 1) // 2))
        return tokens, chances[place] * (counts / drafted[place])

    def realised_selection_law(self) -> FloatArray:
        """Law of the selected token, from the laws of the scores alone; O(V log n)."""
        laws = self.laws
        return realised_law(
            laws.group,
            laws.low,
            laws.high,
            laws.low_share,
            laws.high_share,
            self.draft,
            laws.edges.size - 1,
            self.problem.n,
        )


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
def _draw(
    tokens: IntArray,
    uniform: FloatArray,
    group: IndexArray,
    edges: FloatArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
) -> FloatArray:
    """Scores of tokens, from two uniform numbers each: one for the cell, one for the place."""
    scores = np.empty(tokens.size)
    for m in range(tokens.size):
        g = cell = group[tokens[m]]
        up = _search(low, low_share, g, uniform[2 * m])
        down = _search(high, high_share, g, uniform[2 * m])
        if up < low.size and low[up] == g:
            cell = high[up]
        elif down < high.size and high[down] == g:
            cell = low[down]
        scores[m] = edges[cell] + uniform[2 * m + 1] * (edges[cell + 1] - edges[cell])
    return scores


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
def _steps(
    groups: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Cells that each of some groups scores on, ascending, in compressed rows that END closes.

    Returns
    -------
    offsets : ndarray, shape (m + 1,)
    cells : ndarray, shape (nnz,)
    reached : ndarray, shape (nnz,)
        How much of the law of the score lies up to the end of the cell.
    """
    size = groups.size
    begin, end, offsets = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.zeros(size + 1, np.int64),
    )
    lower = np.ones(size, np.bool_)
    for j in range(size):
        begin[j] = _search(low, low_share, groups[j], -1.0)
        end[j] = _search(low, low_share, groups[j], np.inf)
        if begin[j] == end[j]:
            lower[j] = False
            begin[j] = _search(high, high_share, groups[j], -1.0)
            end[j] = _search(high, high_share, groups[j], np.inf)
        offsets[j + 1] = offsets[j] + end[j] - begin[j] + 2
    cells, reached = np.full(offsets[size], END), np.ones(offsets[size])
    for j in range(size):
        at = offsets[j]
        if lower[j]:
            own = max(0.0, 1.0 - low_share[end[j] - 1])
            cells[at], reached[at] = groups[j], own
            for t in range(begin[j], end[j]):
                at += 1
                cells[at], reached[at] = high[t], min(1.0, own + low_share[t])
        else:
            for t in range(begin[j], end[j]):
                cells[at], reached[at] = low[t], min(1.0, high_share[t])
                at += 1
            cells[at] = groups[j]
    return offsets, cells, reached


@compiled(error_model="numpy")
def _chances(
    counts: IntArray,
    offsets: IntArray,
    cells: IntArray,
    reached: FloatArray,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Probability that each of some groups has the best score, with so many drafts of each.

    One pass over the cells from low to high.  Where only one group can score, however many cells
    that lasts, it is the power of a distribution function that grows; where `degree` drafts of
    several groups can, the density of the best score is a polynomial of degree ``degree - 1``.
    """
    size = counts.size
    chances, before, at = np.zeros(size), np.zeros(size), offsets[:-1].copy()
    while True:
        here = beyond = END
        for j in range(size):
            here = min(here, cells[at[j]])
        if here == END:
            return chances
        degree, rest, only = 0, 1.0, 0
        for j in range(size):
            if cells[at[j]] == here:
                degree += counts[j]
                only = j
            else:
                rest *= before[j] ** counts[j]
                beyond = min(beyond, cells[at[j]])
        if degree == counts[only]:
            start = before[only] ** counts[only]
            while cells[at[only]] < beyond:
                before[only] = reached[at[only]]
                at[only] += 1
            chances[only] += rest * (before[only] ** counts[only] - start)
            continue
        rule = (degree + 1) // 2 - 1
        for node in range(rule + 1):
            x, density = nodes[rule, node], rest * weights[rule, node]
            for j in range(size):
                if cells[at[j]] == here:
                    density *= (before[j] + x * (reached[at[j]] - before[j])) ** counts[j]
            for j in range(size):
                rise = reached[at[j]] - before[j]
                if cells[at[j]] == here and rise > 0.0:
                    chances[j] += density * counts[j] * rise / (before[j] + x * rise)
        for j in range(size):
            if cells[at[j]] == here:
                before[j] = reached[at[j]]
                at[j] += 1


@lru_cache(maxsize=16)
def _gauss_rules(largest: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [0, 1]: row m - 1 is the rule with m nodes."""
    nodes, weights = np.zeros((2, largest, largest))
    for m in range(1, largest + 1):
        x, w = np.polynomial.legendre.leggauss(m)
        nodes[m - 1, :m], weights[m - 1, :m] = 0.5 * (x + 1.0), 0.5 * w
    return nodes, weights
