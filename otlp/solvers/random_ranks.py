"""The optimum for drafts without replacement: tokens swap places in one priority ordering.

Order the tokens by p/q; the optimal subset H* is a prefix.  With this ordering, some tokens are
selected too often and others too rarely.  Pairs of such tokens swap parts of their places, as
i.i.d. drafts swap cells (`otlp.solvers.martingale`).  A place is a set of arrivals in an
exponential race in which a token can arrive repeatedly.  The selection y is the optimal one with
y/p as even as possible: y exceeds p on H* and is below p elsewhere, and errors of the swaps up to
this difference cost no acceptance.  A swap slightly changes the probabilities of the other tokens;
a fixed-point iteration with Anderson acceleration corrects this.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability, supported_if
from otlp.certificate import Answer
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import WithoutReplacement
from otlp.numerics.anderson import HISTORY, accelerated
from otlp.numerics.compiled import compiled
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual, Support
from otlp.solution import Status
from otlp.solvers.gap_solver import PROVABLE, GapSolver, claim
from otlp.solvers.orderings import better_of_orderings
from otlp.solvers.rank_items import RARE, RankItems, attempts
from otlp.solvers.rank_plan import RankPlan
from otlp.timing import Stopwatch

WINDOW, STALLED = 8, 0.05
"""The iteration has stalled if the residual is not below `STALLED` times its value `WINDOW`
iterations earlier."""

TIME_FACTORS = 1.0, 1.5, 0.7, 2.0, 3.0, 5.0
"""Multiples of the default truncation time; the next one is used if the iteration stalls."""

MOST_ARRIVALS = 40.0
"""Cap on the mean number of arrivals; above it, P(no arrival) is below rounding."""

NEWTON_STEPS, ROUGHLY = 20, 0.02
"""Newton steps and tolerance of the truncation time, which affects only the speed."""

MOST_DRAFTS = 64
"""Maximum number of drafts; with more, the integral over arrival times would underflow."""


@dataclass(frozen=True)
class RandomRanks(GapSolver):
    """Swap places in the ordering by p/q until the selection is optimal.

    Parameters
    ----------
    gap : float
        Optimality gap at which to stop.
    max_iterations : int
        Maximum number of corrections of the swaps, and orderings after a stall.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    Unlikely tokens of nearly equal p/q share their ranks (`otlp.solvers.rank_items`).  The cost is
    O(V), and O(n) per group, correction and node of the integral over arrival times
    (`otlp.WithoutReplacement`).  Where groups would lose acceptance, because alpha* is nearly 1, or
    would save little time, the cost is a sort, and O(nV) per correction and node.  The plan needs
    O(V) memory.
    One or two corrections suffice, unless alpha* is nearly 1: then y = p, and each correction
    reduces the gap by a constant factor.  This convergence is measured, not proved.  If the
    iteration stalls, as can happen if nearly all tokens are drafted, the solver restarts with
    another truncation time; finally it also tries `Orderings` and returns the better plan.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.WithoutReplacement([0.4, 0.3, 0.2, 0.1], n=2)
    >>> problem = otlp.Problem([0.1, 0.5, 0.1, 0.3], drafts)
    >>> solution = otlp.solvers.RandomRanks().solve(problem)
    >>> solution.guarantee.name, bool(solution.gap <= 1e-6)
    ('OPTIMAL', True)
    """

    name: ClassVar[str] = "random-ranks"

    def supports(self, problem: Problem) -> Capability:
        """Support 2 to 64 drafts without replacement."""
        check_problem(problem)
        return supported_if(
            isinstance(problem.drafts, WithoutReplacement) and 2 <= problem.n <= MOST_DRAFTS,
            f"the drafts must be 2 to {MOST_DRAFTS} drafts without replacement, got "
            f"{problem.drafts}; use orderings",
        )

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Swap places and correct the swaps."""
        small, inverse = Support().reduce(problem)
        clock.charge("reduce")
        drafts = small.drafts
        assert isinstance(drafts, WithoutReplacement)
        found, corrections = list[tuple[float, RankPlan, Mask]](), 0
        for items in attempts(small.target, drafts, 0.5 * self.gap):
            gap, plan, more = self._swaps(small, items, self.max_iterations - corrections)
            corrections += more
            found.append((gap, plan, items.optimum[1]))
            if gap <= self.gap or corrections == self.max_iterations:
                break
        gap, plan, subset = min(found, key=lambda each: each[0])
        clock.charge("solve")
        lifted, dual = Support().lift(PrimalDual(plan, subset), inverse)
        clock.charge("recover")
        solved = gap <= self.gap
        ended = "stalled" if corrections < self.max_iterations else "stopped"
        answer = Answer(
            lifted,
            claim(gap),
            dual,
            Status.SOLVED if solved else Status.ITERATION_LIMIT,
            "" if solved else f"the swaps {ended} at a gap of {gap:.3g}; the plan is lossless",
            {"corrections": corrections, "ranks": plan.ranks.size},
        )
        left = self.max_iterations - corrections
        if gap > max(self.gap, PROVABLE) and left > 0:
            return better_of_orderings(answer, problem, self.gap, left, clock)
        return answer

    def _swaps(self, problem: Problem, items: RankItems, most: int) -> tuple[float, RankPlan, int]:
        """Swap places of items; return gap, plan, and number of corrections, at most `most`."""
        (law, laws), (delta, _, wanted) = items.ordering, items.optimum
        marginals, single, ranks = law, items.single, np.arange(items.order.size)
        best = ranks, np.ones(ranks.size), laws
        least, corrections = _gap(delta, items.target, law), 0
        metric = np.divide(1.0, items.draft, out=np.zeros(ranks.size), where=items.draft > RARE)
        for factor in TIME_FACTORS:
            if least <= self.gap or corrections == most:
                break
            time = factor * _truncation_time(items.draft, single, problem.n)
            arrivals = np.minimum(time * items.draft, MOST_ARRIVALS)
            iterates = deque([wanted], HISTORY)
            residuals, sizes = deque[FloatArray](maxlen=HISTORY), list[float]()
            while corrections < most:
                ranks, shares = _swap(arrivals, single, marginals, iterates[-1])
                found, laws = items.selected(ranks, shares)
                corrections += 1
                gap = _gap(delta, items.target, found)
                if gap < least:
                    least, law, best = gap, found, (ranks, shares, laws)
                if least <= self.gap:
                    break
                residuals.append(wanted - found)
                sizes.append(float(np.abs(residuals[-1]).sum()))
                if len(sizes) > WINDOW and sizes[-1] >= STALLED * sizes[-1 - WINDOW]:
                    break
                iterates.append(accelerated(iterates, residuals, metric))
        ranks, shares, laws = best
        assert isinstance(problem.drafts, WithoutReplacement)
        selected = problem.drafts._race.law(items.names, items.order, law, laws)
        plan = RankPlan(problem, selected, items.names, items.order[ranks], shares)
        return _gap(delta, problem.target, selected), plan, corrections


def _gap(delta: float, target: FloatArray, law: FloatArray) -> float:
    return 1.0 - delta - float(np.minimum(target, law).sum())


def _truncation_time(draft: FloatArray, single: Mask, n: int) -> float:
    """Return the time at which about n tokens, but never all, have arrived on average.

    A token of a group is too unlikely to arrive twice: arrivals of groups are linear in time.
    """
    grouped, draft = float(draft[~single].sum()), draft[single]
    count = min(n, draft.size - 0.5) if grouped == 0.0 else n
    time = count
    for _ in range(NEWTON_STEPS):
        survival = np.exp(-draft * time)
        rate = float(draft @ survival) + grouped
        if rate < RARE:
            break
        step = (count - draft.size + survival.sum() - grouped * time) / rate
        time += step
        if step < ROUGHLY * time:
            break
    return float(time)


@compiled
def _swap(
    arrivals: FloatArray, single: Mask, marginals: FloatArray, wanted: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Swap places until each item would have `wanted`, if its arrivals were a Poisson process.

    An item is a token or a group of tokens (`otlp.solvers.rank_items`).  An item has the best rank
    of its arrivals.  The width of a place is the mean number of arrivals of its item; the value of
    a place falls by exp(-x) over the width x.  If two items swap equal widths, the items between
    them are not affected.  Items that need more exchange the bottom of their places for the top of
    the places of later items that need less, both in order.

    Parameters
    ----------
    arrivals : ndarray, shape (K,)
        Mean number of arrivals of each item; the item of the lowest rank first.
    single : ndarray of bool, shape (K,)
        Whether each item is a token.
    marginals : ndarray, shape (K,)
        Selection probability of each item without swaps.
    wanted : ndarray, shape (K,)
        Selection probability of each item with swaps.

    Returns
    -------
    items, shares : ndarray, shape (M,)
        Item of each rank, the lowest rank first, and its probability; M <= 5 K.
    """
    size = arrivals.size
    deficit, left, bottom = np.empty(size), np.empty(size), np.empty(size)
    arrives = np.empty(size)
    low, high = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
    moved = np.empty(2 * size)
    begin = np.zeros(size + 1, np.int64)
    swaps, a = 0, 0
    for b in range(size):
        deficit[b], left[b] = wanted[b] - marginals[b], arrivals[b]
        arrives[b] = _share(0.0, left[b])
        top = marginals[b] / arrives[b]
        bottom[b] = top * (1.0 - arrives[b])
        while deficit[b] < 0.0 and left[b] > 0.0:
            while a < b and (deficit[a] <= 0.0 or left[a] <= 0.0):
                a += 1
            if a == b:
                break
            gain = min(deficit[a], -deficit[b])
            # A swap of the width w has this gain for growth = exp(w) - 1; infinity if none has.
            half = 0.5 * (top - bottom[a] - gain)
            rest = half * half - bottom[a] * gain
            growth = gain / (half + np.sqrt(rest)) if half > 0.0 and rest >= 0.0 else np.inf
            part, most = np.log1p(growth), min(left[a], left[b])
            if part > most:
                part, growth = most, np.expm1(most)
                gain = min(gain, max(0.0, growth * (top / (1.0 + growth) - bottom[a])))
            top /= 1.0 + growth
            bottom[a] *= 1.0 + growth
            deficit[a] -= gain
            deficit[b] += gain
            left[a] -= part
            left[b] -= part
            low[swaps], high[swaps], moved[swaps] = a, b, part
            begin[a + 1] += 1
            begin[b + 1] += 1
            swaps += 1
    for k in range(size):
        begin[k + 1] += begin[k] + 1
    tokens, shares = np.empty(begin[size], np.int64), np.empty(begin[size])
    free = begin[:size].copy()
    for k in range(size):
        own = begin[k]
        if wanted[k] > marginals[k]:
            own = begin[k + 1] - 1
        else:
            free[k] = begin[k + 1] - 1
        tokens[own], shares[own] = k, left[k]
    for swap in range(swaps):
        a, b = low[swap], high[swap]
        for here, other, on in ((a, b, 1), (b, a, -1)):
            tokens[free[here]], shares[free[here]] = other, moved[swap]
            free[here] += on
    above = arrivals.copy()
    for rank in range(tokens.size):
        k, part = tokens[rank], shares[rank]
        above[k] -= part
        # Each token of a group practically never arrives twice, so its rank is uniform.
        shares[rank] = _share(above[k], part) / arrives[k] if single[k] else part / arrivals[k]
    return tokens, shares


@compiled
def _share(above: float, part: float) -> float:
    """Return P(arrival in this part and no arrival above it)."""
    return -float(np.exp(-above) * np.expm1(-part))
