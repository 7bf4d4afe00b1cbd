"""The exact optimum for i.i.d. drafts, for any vocabulary and number of drafts, without a sort.

The optimal distribution of the selected token is y = q clip(p/q, c, C).  It is attained by scores:
the score of a draft is a coupling of its token with a uniform number U, in which W = n U^(n-1) has
mean y_i / q_i given token i (a martingale coupling).  Such a coupling is constructed, with
divisions only, by swapping cells between groups of tokens whose ratio is above the mean of W on
their own cell and groups whose ratio is below it.  A bin of ratios is one group, unless it has
ratios on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability
from otlp.certificate import Answer
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope
from otlp.numerics.prefix_sums import accumulate
from otlp.numerics.ratio_bins import (
    MOST_RATIO,
    Opened,
    best_prefix,
    bits_for,
    least_of,
    list_items,
    open_for_levels,
    ratios_below,
)
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.score_plan import (
    GAIN,
    HIGH,
    LOW,
    MEAN,
    REST,
    RISE,
    START,
    IndexArray,
    ScoreLaws,
    ScorePlan,
)
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

LEAST_RATIO = 1.0 / MOST_RATIO
"""Lower bound on levels, so that levels are normal floating-point numbers."""

LEAST_MASS = LEAST_RATIO
"""A group of smaller mass keeps its own cell, because its products with differences of means would
be subnormal and the shares meaningless.  The loss of acceptance is at most this mass."""


@dataclass(frozen=True)
class Martingale(Solver):
    """Solve the OTLP for n i.i.d. drafts exactly, with scores.

    Let Q and P be prefix sums in the order of p/q.  The optimum is 1 - delta with
    delta = max (Q^n - P)^+, whose arg max is H* (Hu et al. 2025; Global Resolution, Eq. 4).  The
    levels c and C satisfy sum (c q - p)^+ = sum (p - C q)^+ = delta.  All three are computed from
    sums of p and q by bins of p/q and from the tokens of a few bins (`otlp.numerics.ratio_bins`).

    Notes
    -----
    O(V), plus a sort of the tokens in the few opened bins; O(V) memory.  The plan needs O(G) memory
    for G groups of tokens, a few thousand for any vocabulary.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solvers.Martingale().solve(problem)
    >>> round(solution.acceptance, 6), solution.guarantee.name
    (0.85, 'OPTIMAL')
    """

    name: ClassVar[str] = "martingale"
    releases_gil: ClassVar[bool] = True
    promise: ClassVar[Guarantee] = Guarantee.LOSSLESS
    """Lossless by construction: the length of a cell is the mass on it, and swaps move equal
    masses; the rounding error is subtracted from the plan's selection distribution."""

    def supports(self, problem: Problem) -> Capability:
        """Support i.i.d. drafts."""
        check_problem(problem)
        if isinstance(problem.drafts, IID):
            return Capability(True)
        return Capability(False, f"drafts must be i.i.d., got {problem.drafts}; use orderings")

    def work(self, problem: Problem) -> float:
        """Return the vocabulary size."""
        check_problem(problem)
        return problem.vocab_size

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Sum by p/q, compute the water-filling levels, and couple scores by swapping cells."""
        assert isinstance(problem.drafts, IID)
        target, draft, n = problem.target, problem.drafts.draft, problem.n
        bins = open_for_levels(target, draft, n, bits_for(target.size))
        order = ascending(bins.ratios[: bins.size])
        spans, groups, pairs, shares, swaps, subset = _score_laws(target, draft, bins, order, n)
        # Copy here, because slices of two dimensions take long to compile.
        swapped = pairs[:, :swaps].copy(), shares[:, :swaps].copy()
        plan = ScorePlan(problem, ScoreLaws(bins.bits, spans, groups, *swapped))
        return Answer(plan, Guarantee.OPTIMAL, subset)


@compiled
def _score_laws(
    target: FloatArray, draft: FloatArray, bins: Opened, order: IntArray, n: int
) -> tuple[IndexArray, FloatArray, IndexArray, FloatArray, int, Mask]:
    """Return `spans`, `groups`, `pairs` and `shares` of `ScoreLaws`, the number T of swaps, and H*.

    The arrays of the swaps have one column per group; the first T are in use.
    """
    size, start, p, q, closed = list_items(target, draft, bins, order)
    level, p_sum, q_sum = np.empty(size), np.empty(size), np.empty(size + 1)
    q_sum[0] = 0.0
    for k in range(size):
        p_sum[k], q_sum[k + 1] = p[k], q[k]
        least = max(start[k], LEAST_RATIO)
        level[k] = max(least, p[k] / q[k]) if closed[k] else least
    accumulate(q_sum)
    accumulate(p_sum)
    delta, length = best_prefix(q_sum, p_sum, n)
    subset = ratios_below(target, draft, start[length] if length < size else np.inf)
    begin, end = _clip(level, q, closed, q_sum, p_sum, delta, n)
    mean, need = np.empty(end - begin), np.empty(end - begin)
    groups = np.empty((end - begin, 5))
    for g in range(end - begin):
        own = begin + g
        mean[g] = power_slope(q_sum[own], q_sum[own + 1], n)
        rise = level[own] - mean[g] if q[own] >= LEAST_MASS else 0.0
        need[g] = q[own] * rise
        groups[g, START] = start[own] if g > 0 else 0.0
        groups[g, MEAN] = mean[g]
        groups[g, GAIN] = 1.0 / rise if closed[own] and rise != 0.0 else 0.0
        groups[g, REST] = 0.0 if closed[own] else 1.0
        groups[g, RISE] = rise
    pairs, shares = np.empty((2, end - begin), np.int32), np.empty((2, end - begin))
    swaps = _swap(q[begin:end], mean, need, pairs, shares)
    for g in range(end - begin):
        if need[g] != 0.0:  # Rounding error, or no partner.
            groups[g, RISE] -= need[g] / q[begin + g]
    spans = _spans(groups, bins.bits, bins.q.size)
    return spans, groups, pairs, shares, swaps, subset


@compiled(inline="always")
def _clip(
    ratio: FloatArray,
    q: FloatArray,
    closed: Mask,
    q_sum: FloatArray,
    p_sum: FloatArray,
    delta: float,
    n: int,
) -> tuple[int, int]:
    """Compute the water-filling levels c and C; merge the items at each level into one group.

    Parameters
    ----------
    ratio, q, closed : ndarray, shape (M,)
        Overwritten at the index of a merged group with its level, its mass, and False; `q` and
        `closed` may be longer.
    q_sum : ndarray, shape (M + 1,)
        Prefix sums of q, starting with 0; overwritten with the edges of merged groups.
    p_sum : ndarray, shape (M,)
        Prefix sums of p.

    Returns
    -------
    start, stop : int
        Range of the groups.  Item k is in group k, or in the first or last group.
    """
    size = ratio.size
    floor, stop = 0, size  # Items before `floor` are at level c.
    while floor < stop:
        k = (floor + stop) // 2
        if ratio[k] * q_sum[k + 1] - p_sum[k] >= delta:
            stop = k
        else:
            floor = k + 1
    start, ceiling = floor, size  # Items from `ceiling` on are at level C.
    while start < ceiling:
        k = (start + ceiling) // 2
        if (1.0 - p_sum[k]) - ratio[k] * (q_sum[size] - q_sum[k + 1]) < delta:
            ceiling = k
        else:
            start = k + 1
    start, stop = floor, ceiling
    least = ratio[ceiling - 1] if ceiling > floor else 1.0
    if floor > 0:
        start = floor - 1
        closed[start] = False
        level = min(1.0, (delta + p_sum[start]) / q_sum[floor])
        q[start] = q_sum[floor]
        ratio[start] = min(level, ratio[floor]) if floor < size else level
        q_sum[start] = 0.0
    if ceiling < size:
        stop = ceiling + 1
        closed[ceiling] = False
        reached = p_sum[ceiling - 1] if ceiling > 0 else 0.0
        accumulate(q[ceiling:size])
        q[ceiling] = q[size - 1]
        level = max(1.0, (1.0 - reached - delta) / q[ceiling])
        ratio[ceiling] = max(min(level, float(n)), least)
        q_sum[stop] = q_sum[size]
    return start, stop


@compiled(inline="always")
def _swap(
    mass: FloatArray, mean: FloatArray, need: FloatArray, pairs: IndexArray, shares: FloatArray
) -> int:
    """Swap cells until W has mean `mean` + `need` / `mass` in every group; return the number T.

    Groups that need a larger mean swap with later groups that need a smaller mean, both in order.
    The swaps are written to the first T columns of `pairs` and `shares`, shape (2, G); see
    `ScoreLaws`.  `need` is reduced to the rounding error.
    """
    swaps, a, share_a = 0, 0, 0.0
    for b in range(mass.size):
        share_b = 0.0
        while need[b] < 0.0:
            while a < b and need[a] <= 0.0:
                a, share_a = a + 1, 0.0
            if a == b:
                break
            gain = min(need[a], -need[b])
            moved = gain / (mean[b] - mean[a])
            share_a += moved / mass[a]
            share_b += moved / mass[b]
            pairs[LOW, swaps], shares[LOW, swaps] = a, share_a
            pairs[HIGH, swaps], shares[HIGH, swaps] = b, share_b
            swaps += 1
            need[a] -= gain
            need[b] += gain
    return swaps


@compiled(inline="always")
def _spans(groups: FloatArray, bits: int, bin_count: int) -> IndexArray:
    """Return the first and last group that the ratios of each bin can be in."""
    spans = np.empty((bin_count, 2), np.int32)
    g, size, end = 0, groups.shape[0], 0.0
    for b in range(bin_count):
        while g + 1 < size and groups[g + 1, START] <= end:
            g += 1
        spans[b, 0] = g
        end = least_of(b + 1, bits) if b + 1 < bin_count else np.inf
        while g + 1 < size and groups[g + 1, START] < end:
            g += 1
        spans[b, 1] = g
    return spans
