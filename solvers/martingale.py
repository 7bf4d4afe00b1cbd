"""The exact optimum for i.i.d. drafts: any vocabulary, any number of drafts, O(V log V).

The best distribution of the selected token is y = q clip(p/q, c, C), and scores reach it: a
draft's score is a coupling of its token with a uniform number, in which W = n U^(n-1) has mean
y_i / q_i given token i (a martingale coupling).  Swapping cells between the tokens whose ratio is
above the mean of W on their own cell, and those whose ratio is below, gives such a coupling by
divisions alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.certificate import Answer
from otlp.distribution import FloatArray, Mask
from otlp.drafts import IID
from otlp.errors import Capability
from otlp.numerics.ascending import low_bits
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slopes
from otlp.numerics.prefix_sums import accumulate
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.score_plan import IndexArray, ScorePlan, Swaps
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

LEAST_RATIO, MOST_RATIO = 2.0**-960, 2.0**960
"""Ratios p/q are kept within these, so that they are normal numbers."""

LEAST_MASS = LEAST_RATIO
"""A group of less mass keeps its own cell: its products with differences of means would be
subnormal, so that shares made of them mean nothing.  That costs no more than the mass itself."""

EQUAL_RATIOS = 1.0 + 2.0**-44
"""Ratios p/q within this factor may be taken to be equal; that costs less than 1e-13."""

BLOCK = 64
"""Prefixes that one bound rules out together."""

# Rows of the scratch of floats, by what they hold at each step: tokens to be sorted, tokens in
# order of p/q, groups of tokens with equal levels y/q.  A row is overwritten by its next content.
KEY = RATIO = LEVEL = 0
"""p/q with the token in its low bits; p/q, ascending; y/q of each group."""
P = P_SUM = DEFICIT = 1
"""p; its prefix sums; mass times what the mean of W on the group's own cell falls short of y/q."""
Q = MASS = 2
"""q; the mass of each group."""
Q_SUM = EDGE = 3
"""Prefix sums of q, from 0; the ends of the groups' cells."""
LOW_SHARE, HIGH_SHARE, MEAN = 4, 5, 6
"""Shares of the two groups of each swap; the mean of W on each group's own cell."""

ORDER, LOW, HIGH = 0, 1, 2
"""Rows of the scratch of indices: tokens in order of p/q; the two groups of each swap."""


@dataclass(frozen=True)
class Martingale(Solver):
    """Solve the OTLP for n i.i.d. drafts exactly, by scores.

    Sort by p/q, with prefix sums Q and P.  The optimum is 1 - delta with delta = max (Q^n - P)^+,
    whose arg max is H* (Hu et al. 2025; Global Resolution, Eq. 4), and the levels c and C are where
    sum (c q - p)^+ = sum (p - C q)^+ = delta.

    Notes
    -----
    O(V log V) for one sort, O(V log n) for the rest; O(V) memory.

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

    def supports(self, problem: Problem) -> Capability:
        """Accept i.i.d. drafts."""
        check_problem(problem)
        if isinstance(problem.drafts, IID):
            return Capability(True)
        return Capability(False, f"the drafts are {problem.drafts!r}, not i.i.d.: use orderings")

    def work(self, problem: Problem) -> float:
        """Return V."""
        check_problem(problem)
        return problem.vocab_size

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Sort by p/q, find the water-filling levels, couple scores by swaps of cells."""
        assert isinstance(problem.drafts, IID)
        target, draft = problem.target, problem.drafts.draft
        work, index = _scratch(draft.size)
        size = _write_keys(target, draft, work[KEY])
        work[KEY, :size].sort()
        if not _unpack(target, draft, work, index[ORDER], size):
            again = work[RATIO, :size].argsort()
            for row in (RATIO, P, Q):
                work[row, :size] = work[row, again]
            index[ORDER, :size] = index[ORDER, again]
        subset, group = np.zeros(draft.size, np.bool_), np.zeros(draft.size, np.int32)
        selected = np.empty(draft.size)
        groups, count = _solve_sorted(draft, problem.n, work, index, size, subset, selected, group)
        swaps = Swaps(
            groups=groups,
            group=group,
            low=index[LOW, :count].copy(),
            high=index[HIGH, :count].copy(),
            low_share=work[LOW_SHARE, :count].copy(),
            high_share=work[HIGH_SHARE, :count].copy(),
        )
        return Answer(ScorePlan(problem, selected, swaps), Guarantee.OPTIMAL, subset)


def _scratch(vocab_size: int) -> tuple[FloatArray, IndexArray]:
    """Arrays to work in.

    They are one block, so that the allocator keeps that much when it is freed, and further solves
    need no fresh pages from the system, which would cost as much as the solve.

    Returns
    -------
    work : ndarray, shape (7, V + 1)
        Rows `KEY` to `MEAN`.
    index : ndarray, shape (4, V + 1), int32
        Rows `ORDER` to `HIGH`; the last is not used.
    """
    block = np.empty((9, vocab_size + 1))
    return block[:7], block[7:].view(np.int32).reshape(4, -1)


@compiled(error_model="numpy")
def _write_keys(target: FloatArray, draft: FloatArray, keys: FloatArray) -> int:
    """Write p/q of the tokens that can be drafted, with the token in its low bits; count them."""
    raw = keys.view(np.int64)
    mask = low_bits(target.size)
    size = 0
    for i in range(target.size):
        if draft[i] > 0.0:
            keys[size] = _ratio(target[i], draft[i])
            raw[size] = (raw[size] & ~mask) | i
            size += 1
    return size


@compiled(error_model="numpy")
def _unpack(
    target: FloatArray, draft: FloatArray, work: FloatArray, order: IndexArray, size: int
) -> bool:
    """Turn sorted keys into tokens, p/q, p and q; whether p/q ascends.

    Keys hold p/q to 32 bits or more, so tokens whose ratios are that close may be out of order.
    If their ratios differ by little more than rounding, they are made equal.  The others are
    inserted in their places, unless they are so many that sorting again is faster.
    """
    ratio, p, q = work[RATIO], work[P], work[Q]
    raw = work[KEY].view(np.int64)
    mask = low_bits(target.size)
    moves = 0
    for k in range(size):
        i = raw[k] & mask
        own = _ratio(target[i], draft[i])
        at = k
        if k > 0 and ratio[k - 1] <= own * EQUAL_RATIOS:
            own = max(own, ratio[k - 1])
        while at > 0 and ratio[at - 1] > own and moves < size:
            order[at], ratio[at], p[at], q[at] = order[at - 1], ratio[at - 1], p[at - 1], q[at - 1]
            at -= 1
            moves += 1
        order[at], ratio[at], p[at], q[at] = i, own, target[i], draft[i]
    return moves < size


@compiled(error_model="numpy")
def _ratio(p: float, q: float) -> float:
    return min(max(p / q, LEAST_RATIO), MOST_RATIO)


@compiled(error_model="numpy")
def _solve_sorted(
    draft: FloatArray,
    n: int,
    work: FloatArray,
    index: IndexArray,
    size: int,
    subset: Mask,
    selected: FloatArray,
    group: IndexArray,
) -> tuple[int, int]:
    """Solve for tokens sorted by p/q; return how many groups and swaps there are.

    Writes H* and the group of each token over zeros, and y.
    """
    ratio, q, order = work[RATIO][:size], work[Q][:size], index[ORDER][:size]
    q_sum, p_sum = work[Q_SUM][: size + 1], work[P_SUM][:size]
    q_sum[0] = 0.0
    for k in range(size):
        q_sum[k + 1] = q[k]
    accumulate(q_sum)
    accumulate(p_sum)
    delta, length = _best_prefix(q_sum, p_sum, n)
    for k in range(length):
        subset[order[k]] = True
    start, stop = _clip(ratio, q, q_sum, p_sum, delta, n)
    for k in range(size):
        group[order[k]] = min(max(k, start), stop - 1) - start
    # of the groups, in whose places they stand now
    level, mass, edge = ratio[start:stop], q[start:stop], q_sum[start : stop + 1]
    swaps = _swap(edge, mass, level, n, work, index)
    for i in range(draft.size):
        selected[i] = draft[i] * level[group[i]]
    return stop - start, swaps


@compiled(error_model="numpy")
def _best_prefix(q_sum: FloatArray, p_sum: FloatArray, n: int) -> tuple[float, int]:
    """Max of Q^n - P over prefixes, at least 0, and the length of the prefix."""
    delta, size = 0.0, 0
    for start in range(0, p_sum.size, BLOCK):
        stop = min(start + BLOCK, p_sum.size)
        # both sums ascend, so this bounds the whole block
        if _power(q_sum[stop], n) - p_sum[start] <= delta:
            continue
        for k in range(start, stop):
            value = _power(q_sum[k + 1], n) - p_sum[k]
            if value > delta:
                delta, size = value, k + 1
    return delta, size


@compiled
def _power(base: float, n: int) -> float:
    result = 1.0
    while n > 0:
        if n & 1:
            result *= base
        base *= base
        n >>= 1
    return result


@compiled(error_model="numpy")
def _clip(
    ratio: FloatArray, q: FloatArray, q_sum: FloatArray, p_sum: FloatArray, delta: float, n: int
) -> tuple[int, int]:
    """Find the water-filling levels c and C; merge the tokens at each of them into one group.

    Parameters
    ----------
    ratio, q : ndarray, shape (K,)
        Overwritten where a merged group stands: with its level, and its mass.
    q_sum : ndarray, shape (K + 1,)
        Prefix sums of q, from 0; overwritten with the edges of merged groups.
    p_sum : ndarray, shape (K,)
        Prefix sums of p.

    Returns
    -------
    start, stop : int
        Where the groups stand.  Token k is in group k, or in the first or last group.
    """
    size = ratio.size
    floor, stop = 0, size  # tokens before `floor` are at level c
    while floor < stop:
        k = (floor + stop) // 2
        if ratio[k] * q_sum[k + 1] - p_sum[k] >= delta:
            stop = k
        else:
            floor = k + 1
    start, ceiling = floor, size  # tokens from `ceiling` on are at level C
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
        level = min(1.0, (delta + p_sum[start]) / q_sum[floor])
        q[start] = q_sum[floor]
        ratio[start] = min(level, ratio[floor]) if floor < size else level
        q_sum[start] = 0.0
    if ceiling < size:
        stop = ceiling + 1
        reached = p_sum[ceiling - 1] if ceiling > 0 else 0.0
        accumulate(q[ceiling:])
        q[ceiling] = q[size - 1]
        level = max(1.0, (1.0 - reached - delta) / q[ceiling])
        ratio[ceiling] = max(min(level, float(n)), least)
        q_sum[stop] = q_sum[size]
    return start, stop


@compiled(error_model="numpy")
def _swap(
    edge: FloatArray,
    mass: FloatArray,
    level: FloatArray,
    n: int,
    work: FloatArray,
    index: IndexArray,
) -> int:
    """Swap cells until W has mean `level` in every group; count the swaps.

    Groups that need a larger mean swap with later groups that need a smaller one, both in their
    order.  What rounding leaves over is taken off the level.  For `work` and `index` see
    `_scratch`.
    """
    deficit, mean = work[DEFICIT], work[MEAN]
    low, low_share = index[LOW], work[LOW_SHARE]
    high, high_share = index[HIGH], work[HIGH_SHARE]
    power_slopes(edge, n, mean)
    swaps, a, share_a = 0, 0, 0.0
    for b in range(mass.size):
        if mass[b] < LEAST_MASS:
            level[b] = mean[b]
        deficit[b] = mass[b] * (level[b] - mean[b])
        share_b = 0.0
        while deficit[b] < 0.0:
            while a < b and deficit[a] <= 0.0:
                a, share_a = a + 1, 0.0
            if a == b:
                break
            gain = min(deficit[a], -deficit[b])
            moved = gain / (mean[b] - mean[a])
            share_a += moved / mass[a]
            share_b += moved / mass[b]
            low[swaps], low_share[swaps] = a, share_a
            high[swaps], high_share[swaps] = b, share_b
            swaps += 1
            deficit[a] -= gain
            deficit[b] += gain
    for g in range(mass.size):
        if deficit[g] != 0.0:
            level[g] -= deficit[g] / mass[g]
    return swaps
