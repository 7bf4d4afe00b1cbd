"""A plan that draws a score for each draft independently and selects the draft with the best score.

Each token has a score distribution such that the score of a random draft is uniform on [0, 1].  The
interval [0, 1] is divided into *cells*, one per group of tokens, with the group's draft probability
as its length.  If each token drew its score from the cell of its group, the scores would be
uniform.  A *swap* exchanges equal masses between the cells of two groups, which keeps the scores
uniform.  Swaps control the mean of W = n U^(n-1) for every token, which determines how often the
token has the best of n scores: the larger the distance of a token's p/q from the mean of W on the
group's own cell, the more the token swaps.

A score is stored as a cell index and a position in the cell, because cells with probabilities such
as 1e-300 would coincide in floating point.

The plan stores groups, not tokens; the group of a token follows from its p/q.  Given the drafted
tokens, the scores are independent with piecewise linear distribution functions, so the probability
of each draft to have the best score is a sum of integrals of polynomials.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import IID
from otlp.errors import UnsupportedProblemError
from otlp.numerics.best_of import END, best_of
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope
from otlp.numerics.prefix_sums import accumulate
from otlp.numerics.ratio_bins import MOST_RATIO, bin_of
from otlp.numerics.sums import total
from otlp.plan import Marginals, SelectionPlan
from otlp.plan.plan import Plan
from otlp.plan.selection import LEAST
from otlp.problem import Problem

IndexArray = npt.NDArray[np.int32]

# Columns of `ScoreLaws.groups`; rows of `ScoreLaws.pairs` and `ScoreLaws.shares`.
START, MEAN, GAIN, REST, RISE = 0, 1, 2, 3, 4
LOW, HIGH = 0, 1

LANES = 4
"""Number of independent sums per group: consecutive tokens of one group add to different sums, so
that an addition does not wait for the previous one."""


class ScoreLaws(NamedTuple):
    """Score laws (distributions of scores) of all tokens, for G groups of tokens and T swaps.

    A token of group g scores uniformly on a cell: for each swap of g, on the partner's cell with
    probability share times the token's factor; otherwise on the cell of g.  The factor of a token
    with ratio r is (r - MEAN) GAIN + REST, which is 1 if all tokens of the group have one level.

    Attributes
    ----------
    bits : int
        Number of mantissa bits that the ratios of a bin share (`otlp.numerics.ratio_bins`).
    spans : ndarray, shape (K, 2), int32
        First and last group that the ratios of each bin can be in.
    groups : ndarray, shape (G, 5)
        START, the smallest ratio of each group, ascending; MEAN, the mean of W on its own cell;
        GAIN and REST; RISE, the increase of MEAN by swaps for a token of factor 1.
    pairs : ndarray, shape (2, T), int32
        LOW and HIGH, the two groups of each swap, low < high; both rows ascend, and no group is in
        both rows.
    shares : ndarray, shape (2, T)
        Share of the scores of group LOW on the cell of HIGH, and vice versa, each summed over the
        swaps of its group up to this one.
    """

    bits: int
    spans: IndexArray
    groups: FloatArray
    pairs: IndexArray
    shares: FloatArray


Laws = tuple[FloatArray, FloatArray, int, IndexArray, FloatArray, IndexArray, FloatArray]
"""Target, draft, and the fields of `ScoreLaws`."""


class ScorePlan(SelectionPlan):
    """Select the draft with the best score, then accept or replace it.

    Parameters
    ----------
    problem : Problem
        Problem with i.i.d. drafts.
    laws : ScoreLaws
        Score distributions of the tokens.

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.

    Notes
    -----
    Selecting costs O(n log T) for T swaps.  The exact distribution of a selection costs O(n) for
    each cell that a drafted token can score on, and O(n^2) if several can.  Memory is O(G + T);
    `sample`, `conditional`, `accept` and `residual` create arrays over the vocabulary at their
    first use and keep them.
    """

    def __init__(self, problem: Problem, laws: ScoreLaws) -> None:
        Plan.__init__(self, problem)
        if not isinstance(problem.drafts, IID):
            raise UnsupportedProblemError(
                f"the drafts of a ScorePlan must be i.i.d. drafts, got {problem.drafts!r}"
            )
        self.laws = laws
        # Compiled functions unpack a plain tuple in half the time of a NamedTuple.
        self._laws: Laws = (problem.target, problem.drafts.draft, *laws)

    @cached_property
    def selection_distribution(self) -> FloatArray:  # type: ignore[override]
        """Intended distribution y of the selected token, without rounding errors of swaps; (V,)."""
        group, factor = _token_laws(self._laws)
        mean, rise = self.laws.groups[:, MEAN].copy(), self.laws.groups[:, RISE].copy()
        return _selected(self._laws, group, factor, mean, rise)

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Sample the selected tokens of valid tuples, (m, n) -> (m,); O(n log T) per tuple."""
        return _best_scored(tokens, rng.random((*tokens.shape, 2)), self._laws)

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the exact distribution of the selected token; see `SelectionPlan`."""
        ordered = np.sort(draft_tokens)  # In a kernel, a sort takes seconds to compile.
        tokens, counts, place, groups, factors, drafted = _distinct(ordered, self._laws)
        chances = best_of(drafted, *_cells(groups, factors, self._laws))
        return tokens, chances[place] * (counts / drafted[place])

    def token_laws(self) -> tuple[IndexArray, FloatArray]:
        """Return group and factor of each token, shape (V,); undefined if the draft is 0."""
        group, factor = _token_laws(self._laws)
        return group.astype(np.int32), factor

    def score_masses(self) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Return the draft mass that each group of tokens has on each cell.

        Returns
        -------
        owner, cell : ndarray, shape (G + 2 T,)
            Group, and cell that it scores on: first the groups' own cells, then those of the swaps.
        mass : ndarray, shape (G + 2 T,)
            Masses, with sum 1; the masses on a cell sum to the draft probability of its group.
        """
        low, high = self.laws.pairs
        group, factor = _token_laws(self._laws)
        whole, moving = np.empty((2, self.laws.groups.shape[0]))
        _write_masses(self._laws, group, factor, whole, moving)
        up = moving[low] * _share_per_swap(low, self.laws.shares[LOW])
        down = moving[high] * _share_per_swap(high, self.laws.shares[HIGH])
        own = whole - np.bincount(low, up, whole.size) - np.bincount(high, down, whole.size)
        numbers = np.arange(whole.size, dtype=np.int32)
        return (
            np.concatenate((numbers, low, high)),
            np.concatenate((numbers, high, low)),
            np.concatenate((np.maximum(own, 0.0), up, down)),
        )

    def realised_selection_distribution(self) -> FloatArray:
        """Return the distribution of the selected token from the score laws; O(V + G log n)."""
        group, factor = _token_laws(self._laws)
        mean, rise = np.empty((2, self.laws.groups.shape[0]))
        _write_rates(self._laws, self.problem.n, group, factor, mean, rise)
        return _selected(self._laws, group, factor, mean, rise)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution from the realised selection; O(V)."""
        # Allocate one block, which the allocator reuses; new memory costs more than the arithmetic.
        accepted, output = np.empty((2, self.problem.vocab_size))
        _marginals(self._laws, self.problem.n, accepted, output)
        return Marginals(accepted, output, "closed form")


def _share_per_swap(owner: IndexArray, share: FloatArray) -> FloatArray:
    """Return the share of each swap from the cumulative shares of its group."""
    before = np.where(owner == np.roll(owner, 1), np.roll(share, 1), 0.0)
    before[:1] = 0.0
    return share - before


@compiled
def _law_of(ratio: float, laws: Laws) -> tuple[int, float]:
    """Return group and factor of a token with this ratio."""
    bits, spans = laws[2], laws[3]
    return _law_in(bin_of(ratio, bits, spans.shape[0] - 1), ratio, spans, laws[4])


@compiled(inline="always")
def _law_in(place: int, ratio: float, spans: IndexArray, groups: FloatArray) -> tuple[int, float]:
    """Return group and factor of a token with this bin and ratio."""
    g, last = spans[place, 0], spans[place, 1]
    while g < last:
        middle = (g + last + 1) // 2
        if groups[middle, START] <= ratio:
            g = middle
        else:
            last = middle - 1
    ratio = min(ratio, MOST_RATIO)
    return int(g), max(0.0, (ratio - groups[g, MEAN]) * groups[g, GAIN] + groups[g, REST])


@compiled
def _token_laws(laws: Laws) -> FloatArray:
    """Return group and factor of each token, shape (2, V); see `_write_laws`."""
    rows = np.empty((2, laws[1].size))
    _write_laws(laws, rows[0], rows[1])
    return rows


@compiled
def _distinct(
    draft_tokens: IntArray, laws: Laws
) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray, IntArray]:
    """Return distinct tokens, their counts and law indices; distinct laws and their counts.

    A law is a pair of group and factor.  `draft_tokens` must be sorted.
    """
    target, draft = laws[0], laws[1]
    most, size, law_count = draft_tokens.size, 0, 0
    tokens, counts = np.empty(most, np.int64), np.empty(most, np.int64)
    place, drafted = np.empty(most, np.int64), np.empty(most, np.int64)
    groups, factors = np.empty(most, np.int64), np.empty(most)
    for token in draft_tokens:
        if size == 0 or token != tokens[size - 1]:
            g, factor = _law_of(target[token] / draft[token], laws)
            law = 0
            while law < law_count and (groups[law] != g or factors[law] != factor):
                law += 1
            if law == law_count:
                groups[law], factors[law], drafted[law] = g, factor, 0
                law_count += 1
            tokens[size], counts[size], place[size] = token, 0, law
            size += 1
        counts[size - 1] += 1
        drafted[place[size - 1]] += 1
    tokens, counts, place = tokens[:size], counts[:size], place[:size]
    return tokens, counts, place, groups[:law_count], factors[:law_count], drafted[:law_count]


@compiled
def _best_scored(tokens: IntArray, uniform: FloatArray, laws: Laws) -> IntArray:
    """Return the token with the best score in each row, from two uniform numbers per token."""
    target, draft = laws[0], laws[1]
    best = np.empty(tokens.shape[0], np.int64)
    for m in range(tokens.shape[0]):
        highest, farthest = -1, 0.0
        for j in range(tokens.shape[1]):
            token, place = tokens[m, j], uniform[m, j, 1]
            cell = _cell(target[token] / draft[token], uniform[m, j, 0], laws)
            if cell > highest or (cell == highest and place > farthest):
                best[m], highest, farthest = token, cell, place
    return best


@compiled
def _cell(ratio: float, uniform: float, laws: Laws) -> int:
    """Return the cell of the score of a token with this ratio, from a uniform number."""
    pairs, shares = laws[5], laws[6]
    g, factor = _law_of(ratio, laws)
    least = uniform / factor
    for own, partner in ((LOW, HIGH), (HIGH, LOW)):
        swap = _search(pairs[own], shares[own], g, least)
        if swap < pairs.shape[1] and pairs[own, swap] == g:
            return int(pairs[partner, swap])
    return g


@compiled
def _search(owner: IndexArray, share: FloatArray, g: int, least: float) -> int:
    """Return the first swap of group g with share > `least`, else the first of a later group."""
    begin, end = 0, owner.size
    while begin < end:
        middle = (begin + end) // 2
        if owner[middle] > g or (owner[middle] == g and share[middle] > least):
            end = middle
        else:
            begin = middle + 1
    return begin


@compiled
def _cells(
    groups: IntArray, factors: FloatArray, laws: Laws
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the cells of the given laws and their masses, in rows for `best_of`."""
    pairs, shares = laws[5], laws[6]
    low, high = pairs[LOW], pairs[HIGH]
    size = groups.size
    begin, end = np.empty(size, np.int64), np.empty(size, np.int64)
    offsets = np.zeros(size + 1, np.int64)
    lower = np.ones(size, np.bool_)
    for j in range(size):
        begin[j] = _search(low, shares[LOW], groups[j], -1.0)
        end[j] = _search(low, shares[LOW], groups[j], np.inf)
        if begin[j] == end[j]:
            lower[j] = False
            begin[j] = _search(high, shares[HIGH], groups[j], -1.0)
            end[j] = _search(high, shares[HIGH], groups[j], np.inf)
        offsets[j + 1] = offsets[j] + end[j] - begin[j] + 2
    cells, mass = np.full(offsets[size], END), np.zeros(offsets[size])
    for j in range(size):
        partner, share = (high, shares[LOW]) if lower[j] else (low, shares[HIGH])
        # A swap's partner is later for the lower group and earlier for the higher one, so the
        # group's own cell comes first or last.
        at = offsets[j] + (1 if lower[j] else 0)
        before = 0.0
        for t in range(begin[j], end[j]):
            # `_best_scored` compares with a number below 1, so clip the share at 1.
            reached = min(1.0, share[t] * factors[j])
            cells[at], mass[at] = partner[t], reached - before
            before = reached
            at += 1
        own = offsets[j] if lower[j] else at
        cells[own], mass[own] = groups[j], 1.0 - before
    return offsets, cells, mass


@compiled(inline="always")
def _write_laws(laws: Laws, group: FloatArray, factor: FloatArray) -> None:
    """Write group and factor of each token; both are 0 for a token that is never drafted."""
    target, draft = laws[0], laws[1]
    bits, spans, groups = laws[2], laws[3], laws[4]
    # The first loop stores the bin and the ratio of each token.
    for i in range(draft.size):
        factor[i] = target[i] / draft[i] if draft[i] > 0.0 else 0.0
        group[i] = bin_of(factor[i], bits, spans.shape[0] - 1)
    for i in range(draft.size):
        if draft[i] > 0.0:
            group[i], factor[i] = _law_in(int(group[i]), factor[i], spans, groups)


@compiled(inline="always")
def _write_masses(
    laws: Laws, group: FloatArray, factor: FloatArray, mass: FloatArray, moving: FloatArray
) -> None:
    """Write the mass of each group, and the sum of mass times factor over its tokens."""
    draft, count = laws[1], mass.size
    sums = np.empty((LANES * count, 3))
    for row in range(LANES * count):
        for column in range(3):
            sums[row, column] = 0.0
    for i in range(draft.size):
        q = draft[i]
        if q == 0.0:
            continue
        row = i % LANES * count + int(group[i])
        old, total = sums[row, 0], sums[row, 0] + q
        part = total - old
        sums[row, 0] = total
        sums[row, 1] += (old - (total - part)) + (q - part)  # Rounding error.
        sums[row, 2] += q * factor[i]
    for g in range(count):
        held, lost, moved = 0.0, 0.0, 0.0
        for lane in range(LANES):
            row = lane * count + g
            held += sums[row, 0]
            lost += sums[row, 1]
            moved += sums[row, 2]
        mass[g], moving[g] = held + lost, moved


@compiled(inline="always")
def _write_rates(
    laws: Laws, n: int, group: FloatArray, factor: FloatArray, mean: FloatArray, rise: FloatArray
) -> None:
    """Write the selection probability per group without swaps, and its increase by swaps.

    A token of factor f is selected with probability q (mean + f rise).  The mass on each cell is
    recomputed from the swaps, so the result is correct even if the scores are not uniform.
    O(V + T + G log n).
    """
    pairs, shares = laws[5], laws[6]
    edges, moving = np.empty(mean.size + 1), np.empty(mean.size)
    edges[0], held = 0.0, edges[1:]
    _write_masses(laws, group, factor, held, moving)
    up, down = np.empty(pairs.shape[1]), np.empty(pairs.shape[1])  # Share of each swap.
    for t in range(pairs.shape[1]):
        a, b = pairs[LOW, t], pairs[HIGH, t]
        up[t] = shares[LOW, t] - (shares[LOW, t - 1] if t and pairs[LOW, t - 1] == a else 0.0)
        down[t] = shares[HIGH, t] - (shares[HIGH, t - 1] if t and pairs[HIGH, t - 1] == b else 0.0)
        moved = moving[a] * up[t] - moving[b] * down[t]
        held[a] -= moved
        held[b] += moved
    accumulate(held)
    for g in range(mean.size):
        mean[g], rise[g] = power_slope(edges[g], edges[g + 1], n), 0.0
    for t in range(pairs.shape[1]):
        a, b = pairs[LOW, t], pairs[HIGH, t]
        rise[a] += up[t] * (mean[b] - mean[a])
        rise[b] -= down[t] * (mean[b] - mean[a])


@compiled
def _selected(
    laws: Laws, group: FloatArray, factor: FloatArray, mean: FloatArray, rise: FloatArray
) -> FloatArray:
    """Return the distribution of the selected token from the probabilities of each group."""
    draft = laws[1]
    selected = np.empty(draft.size)
    for i in range(draft.size):
        g = int(group[i])
        selected[i] = draft[i] * (mean[g] + factor[i] * rise[g])
    return selected


@compiled
def _marginals(laws: Laws, n: int, accepted: FloatArray, output: FloatArray) -> None:
    """Write the accepted mass and the output probability of each token."""
    target, draft, groups = laws[0], laws[1], laws[4]
    # Both arrays first store group and factor of the tokens.
    _write_laws(laws, accepted, output)
    mean, rise = np.empty(groups.shape[0]), np.empty(groups.shape[0])
    _write_rates(laws, n, accepted, output, mean, rise)
    # Then both store the probability of selection per q: as realised, and as intended.
    for i in range(draft.size):
        g, factor = int(accepted[i]), output[i]
        accepted[i] = mean[g] + factor * rise[g]
        output[i] = groups[g, MEAN] + factor * groups[g, RISE]
    for i in range(draft.size):  # A loop without lookups can be vectorised.
        p, q = target[i], draft[i]
        y = q * output[i]
        accepted[i] *= q * (p / max(max(p, y), LEAST))
        output[i] = max(p - y, 0.0)
    whole, rest = total(output), max(0.0, 1.0 - total(accepted))
    if whole <= 0.0:  # Then the residual is sampled with probability zero, except for rounding.
        whole = 1.0
        for i in range(target.size):
            output[i] = target[i]
    for i in range(target.size):
        output[i] = accepted[i] + output[i] / whole * rest
