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
from otlp.numerics.running_sum import accumulate
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.score_plan import IndexArray, ScorePlan, Swaps
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

LEAST, MOST = 2.0**-960, 2.0**960
"""Ratios p/q are kept within these, so that they are normal numbers."""

LIGHTEST = LEAST
"""A group of less mass keeps its own cell: its products with differences of means would be
subnormal, so that shares made of them mean nothing.  That costs no more than the mass itself."""

SAME = 1.0 + 2.0**-44
"""Ratios p/q within this factor may be taken to be equal; that costs less than 1e-13."""

BLOCK = 64
"""Prefixes that one bound rules out together."""

RATIO, TARGET, DRAFT, ENDS, LOW_SHARE, HIGH_SHARE, MEAN = range(7)
"""Rows of the scratch of floats: p/q (as keys at first, and at last y/q of the groups); p (then
its running sums, then what each group's mean lacks); q (then the groups' mass); ends of the
cells; the shares of the swaps; means of W on the cells."""

ORDER, LOW, HIGH = range(3)
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
        """Sort, find the levels, swap."""
        assert isinstance(problem.drafts, IID)
        target, draft = problem.target, problem.drafts.draft
        work, index = _scratch(draft.size)
        size = _write_keys(target, draft, work[RATIO])
        work[RATIO, :size].sort()
        if not _unpack(target, draft, work, index[ORDER], size):
            again = work[RATIO, :size].argsort()
            for row in (RATIO, TARGET, DRAFT):
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
        Rows `RATIO` to `MEAN`.
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
    ratio, p, q = work[RATIO], work[TARGET], work[DRAFT]
    raw = ratio.view(np.int64)
    mask = low_bits(target.size)
    moves = 0
    for k in range(size):
        i = raw[k] & mask
        own = _ratio(target[i], draft[i])
        at = k
        if k > 0 and ratio[k - 1] <= own * SAME:
            own = max(own, ratio[k - 1])
        while at > 0 and ratio[at - 1] > own and moves < size:
            order[at], ratio[at], p[at], q[at] = order[at - 1], ratio[at - 1], p[at - 1], q[at - 1]
            at -= 1
            moves += 1
        order[at], ratio[at], p[at], q[at] = i, own, target[i], draft[i]
    return moves < size


@compiled(error_model="numpy")
def _ratio(p: float, q: float) -> float:
    return min(max(p / q, LEAST), MOST)


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
    ratio, p, q = work[RATIO][:size], work[TARGET][:size], work[DRAFT][:size]
    below, order = work[ENDS][: size + 1], index[ORDER][:size]
    below[0] = 0.0
    for k in range(size):
        below[k + 1] = q[k]
    accumulate(below)
    accumulate(p)
    delta, length = _best_prefix(below, p, n)
    for k in range(length):
        subset[order[k]] = True
    start, stop = _clip(ratio, q, below, p, delta, n)
    for k in range(size):
        group[order[k]] = min(max(k, start), stop - 1) - start
    goal = ratio[start:stop]
    swaps = _swap(below[start : stop + 1], q[start:stop], goal, n, work, index)
    for i in range(draft.size):
        selected[i] = draft[i] * goal[group[i]]
    return stop - start, swaps


@compiled(error_model="numpy")
def _best_prefix(below: FloatArray, wanted: FloatArray, n: int) -> tuple[float, int]:
    """Max of Q^n - P over prefixes, at least 0, and the length of the prefix."""
    delta, size = 0.0, 0
    for start in range(0, wanted.size, BLOCK):
        stop = min(start + BLOCK, wanted.size)
        # both sums ascend, so this bounds the whole block
        if _power(below[stop], n) - wanted[start] <= delta:
            continue
        for k in range(start, stop):
            value = _power(below[k + 1], n) - wanted[k]
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
    ratio: FloatArray, q: FloatArray, below: FloatArray, wanted: FloatArray, delta: float, n: int
) -> tuple[int, int]:
    """Merge the tokens at level c into one group, and those at level C into another.

    Parameters
    ----------
    ratio, q : ndarray, shape (K,)
        Overwritten where a merged group stands: with its level, and its mass.
    below : ndarray, shape (K + 1,)
        Sums of q before each token, and of all; overwritten with the ends of merged groups.
    wanted : ndarray, shape (K,)
        Sums of p up to each token.

    Returns
    -------
    start, stop : int
        Where the groups stand.  Token k is in group k, or in the first or last group.
    """
    size = ratio.size
    floor, stop = 0, size  # tokens before `floor` are at level c
    while floor < stop:
        k = (floor + stop) // 2
        if ratio[k] * below[k + 1] - wanted[k] >= delta:
            stop = k
        else:
            floor = k + 1
    start, ceiling = floor, size  # tokens from `ceiling` on are at level C
    while start < ceiling:
        k = (start + ceiling) // 2
        if (1.0 - wanted[k]) - ratio[k] * (below[size] - below[k + 1]) < delta:
            ceiling = k
        else:
            start = k + 1
    start, stop = floor, ceiling
    least = ratio[ceiling - 1] if ceiling > floor else 1.0
    if floor > 0:
        start = floor - 1
        level = min(1.0, (delta + wanted[start]) / below[floor])
        q[start] = below[floor]
        ratio[start] = min(level, ratio[floor]) if floor < size else level
        below[start] = 0.0
    if ceiling < size:
        stop = ceiling + 1
        reached = wanted[ceiling - 1] if ceiling > 0 else 0.0
        accumulate(q[ceiling:])
        q[ceiling] = q[size - 1]
        level = max(1.0, (1.0 - reached - delta) / q[ceiling])
        ratio[ceiling] = max(min(level, float(n)), least)
        below[stop] = below[size]
    return start, stop


@compiled(error_model="numpy")
def _swap(
    edges: FloatArray,
    mass: FloatArray,
    goal: FloatArray,
    n: int,
    work: FloatArray,
    index: IndexArray,
) -> int:
    """Swap cells until W has mean `goal` in every group; count the swaps.

    Groups that need a larger mean swap with later groups that need a smaller one, first come,
    first served.  What rounding leaves over is taken off the goal.  For `work` and `index` see
    `_scratch`.
    """
    # p is no longer needed: `_clip` was the last to read it
    need, mean = work[TARGET], work[MEAN]
    low, low_share = index[LOW], work[LOW_SHARE]
    high, high_share = index[HIGH], work[HIGH_SHARE]
    power_slopes(edges, n, mean)
    swaps, a, share_a = 0, 0, 0.0
    for b in range(mass.size):
        if mass[b] < LIGHTEST:
            goal[b] = mean[b]
        need[b] = mass[b] * (goal[b] - mean[b])
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
            low[swaps], low_share[swaps] = a, share_a
            high[swaps], high_share[swaps] = b, share_b
            swaps += 1
            need[a] -= gain
            need[b] += gain
    for g in range(mass.size):
        if need[g] != 0.0:
            goal[g] -= need[g] / mass[g]
    return swaps
