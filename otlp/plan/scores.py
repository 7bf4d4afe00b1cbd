"""A plan that scores every draft by itself and selects the one with the best score.

Given the drafted tokens the scores are independent, and their distribution functions are
piecewise linear, so the law of the best is a sum of integrals of polynomials.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numba import njit

from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.plan.score_laws import IndexArray, ScoreLaws, realised_law
from otlp.plan.selection import SelectionPlan
from otlp.problem import Problem, check_tokens

__all__ = ["ScorePlan"]


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
            laws.first,
            laws.last,
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
        tokens, counts = np.unique(draft_tokens, return_counts=True)
        laws = self.laws
        groups, place = np.unique(laws.group[tokens], return_inverse=True)
        drafted = np.bincount(place, weights=counts).astype(np.int64)
        chances = _chances(
            groups,
            drafted,
            laws.first,
            laws.last,
            laws.low,
            laws.high,
            laws.low_share,
            laws.high_share,
            *_gauss_rules((draft_tokens.size + 1) // 2),
        )
        return tokens, chances[place] * (counts / drafted[place])

    def _check(self, draft_tokens: npt.ArrayLike) -> IntArray:
        tokens = check_tokens(draft_tokens, self.problem.n, self.problem.vocab_size)
        # the probability of a tuple may underflow where no token is impossible
        if min(self.draft[tokens].tolist()) > 0.0:
            return tokens
        return super()._check(tokens)

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
            laws.first.size,
            self.problem.n,
        )


@njit(cache=True)
def _draw(
    tokens: IntArray,
    uniform: FloatArray,
    group: IndexArray,
    edges: FloatArray,
    first: IndexArray,
    last: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
) -> FloatArray:
    """Scores of tokens, from two uniform numbers each: one for the cell, one for the place."""
    scores = np.empty(tokens.size)
    for m in range(tokens.size):
        g = cell = group[tokens[m]]
        begin, end = first[g], last[g]
        if begin < end:
            lower = low[begin] == g
            share = low_share if lower else high_share
            while begin < end:
                middle = (begin + end) // 2
                if share[middle] > uniform[2 * m]:
                    end = middle
                else:
                    begin = middle + 1
            if begin < last[g]:
                cell = high[begin] if lower else low[begin]
        scores[m] = edges[cell] + uniform[2 * m + 1] * (edges[cell + 1] - edges[cell])
    return scores


@njit(cache=True, error_model="numpy")
def _chances(
    groups: IndexArray,
    counts: IntArray,
    first: IndexArray,
    last: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Probability that each of some groups has the best score, with so many drafts of each.

    One pass over the cells from low to high.  Where only one group can score, however many cells
    that lasts, it is the power of a distribution function that grows; where `degree` drafts of
    several groups can, the density of the best score is a polynomial of degree ``degree - 1``.
    """
    size, end = groups.size, first.size
    chances, before, after = np.zeros(size), np.zeros(size), np.zeros(size)
    step, cell = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for j in range(size):
        cell[j], after[j] = _step(groups[j], 0, first, last, low, high, low_share, high_share)
    while True:
        here, beyond, degree, rest, only = end, end, 0, 1.0, 0
        for j in range(size):
            here = min(here, cell[j])
        if here == end:
            return chances
        for j in range(size):
            if cell[j] == here:
                degree += counts[j]
                only = j
            else:
                rest *= before[j] ** counts[j]
                beyond = min(beyond, cell[j])
        if degree == counts[only]:
            start = before[only] ** counts[only]
            while cell[only] < beyond:
                before[only] = after[only]
                step[only] += 1
                cell[only], after[only] = _step(
                    groups[only], step[only], first, last, low, high, low_share, high_share
                )
            chances[only] += rest * (before[only] ** counts[only] - start)
            continue
        rule = (degree + 1) // 2 - 1
        for node in range(rule + 1):
            x, density = nodes[rule, node], rest * weights[rule, node]
            for j in range(size):
                if cell[j] == here:
                    density *= (before[j] + x * (after[j] - before[j])) ** counts[j]
            for j in range(size):
                rise = after[j] - before[j]
                if cell[j] == here and rise > 0.0:
                    chances[j] += density * counts[j] * rise / (before[j] + x * rise)
        for j in range(size):
            if cell[j] == here:
                before[j] = after[j]
                step[j] += 1
                cell[j], after[j] = _step(
                    groups[j], step[j], first, last, low, high, low_share, high_share
                )


@njit(cache=True)
def _step(
    g: int,
    step: int,
    first: IndexArray,
    last: IndexArray,
    low: IndexArray,
    high: IndexArray,
    low_share: FloatArray,
    high_share: FloatArray,
) -> tuple[int, float]:
    """Cell number `step`, from below, that group g scores on, and how much lies up to its end.

    After the last cell, the number of all cells.
    """
    begin, end = first[g], last[g]
    if step > end - begin:
        return first.size, 1.0
    if begin == end:
        return g, 1.0
    if low[begin] == g:
        own = max(0.0, 1.0 - low_share[end - 1])
        if step == 0:
            return g, own
        return high[begin + step - 1], min(1.0, own + low_share[begin + step - 1])
    if begin + step == end:
        return g, 1.0
    return low[begin + step], min(1.0, high_share[begin + step])


@lru_cache(maxsize=16)
def _gauss_rules(largest: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [0, 1]: row m - 1 is the rule with m nodes."""
    nodes, weights = np.zeros((2, largest, largest))
    for m in range(1, largest + 1):
        x, w = np.polynomial.legendre.leggauss(m)
        nodes[m - 1, :m], weights[m - 1, :m] = 0.5 * (x + 1.0), 0.5 * w
    return nodes, weights
