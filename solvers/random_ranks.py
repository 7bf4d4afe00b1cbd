"""The optimum for draws without replacement: tokens that swap places in one priority ordering.

Order the tokens by p/q; the best subset H* is a prefix.  In that ordering a token is selected too
often or too seldom; one of each kind swap parts of their places, as i.i.d. drafts swap cells
(`otlp.solvers.martingale`): arrivals in an exponential race, as if each could arrive often.  Of
the many optimal selections y is the one with y/p as even as possible: on H* it exceeds p,
elsewhere it falls short, and by as much the swaps may miss it.  A swap moves the chances of the
other tokens by a little, so what is left is swapped again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.certificate import Answer
from otlp.checks import check_number, whole_number
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import WithoutReplacement
from otlp.errors import Capability
from otlp.numerics.ascending import by_ratio
from otlp.numerics.compiled import compiled
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual, Support
from otlp.solution import Guarantee, Status
from otlp.solvers.orderings import PROVABLE, Orderings
from otlp.solvers.rank_plan import RankPlan
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch, loaded

DEPTH = 2
"""Earlier corrections that the next one learns from."""

PATIENCE, STALLED = 8, 0.05
"""So many corrections must leave less than this part of the error, or the swaps have stalled."""

PACES = 1.0, 1.5, 0.7, 2.0, 3.0, 5.0
"""Multiples of the usual truncation time, tried in turn where the iteration stalls."""

SURE = 40.0
"""Of more arrivals than so many, on average, at least one is certain to rounding."""

RARE = 1e-300
"""A rate whose time, or a probability whose inverse, may overflow."""

NEWTON_STEPS, ROUGHLY = 20, 0.02
"""Newton steps and tolerance of the truncation time, which affects the speed alone."""

MOST_DRAFTS = 64
"""For more, the integral over arrival times would underflow."""


@dataclass(frozen=True)
class RandomRanks(Solver):
    """Swap places in the ordering by p/q until the best selection is reached.

    Parameters
    ----------
    gap : float
        Stop when the acceptance is certified within this of the optimum.
    max_iterations : int
        Corrections of the swaps at most.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    A sort, then O(nV) a correction and node of the integral over arrival times
    (`otlp.WithoutReplacement`); O(V) memory for the plan.  One correction or two, unless alpha* is
    nearly 1: then y is p, and the gap falls by a constant factor with each.  That it does is
    measured, not proved: where it stalls, as it may where nearly all tokens are drafted, it begins
    anew with a longer or shorter race, and where all have stalled, with `Orderings`.

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
    releases_gil: ClassVar[bool] = True

    gap: float = PROVABLE
    max_iterations: int = 100

    def __post_init__(self) -> None:
        """Check the options."""
        check_number("gap", self.gap, lambda gap: gap >= 0.0, "be a number of at least 0")
        whole_number(self.max_iterations, "max_iterations", 1)

    def supports(self, problem: Problem) -> Capability:
        """Accept two or more drafts without replacement."""
        check_problem(problem)
        if isinstance(problem.drafts, WithoutReplacement) and 2 <= problem.n <= MOST_DRAFTS:
            return Capability(True)
        return Capability(
            False,
            f"the drafts are {problem.drafts!r}, not 2 to {MOST_DRAFTS} without replacement: "
            "use orderings",
        )

    @property
    def promise(self) -> Guarantee:
        """Lossless after every correction: y is summed up from the ranks themselves."""
        return Guarantee.LOSSLESS

    def work(self, problem: Problem) -> float:
        """Tokens that can be drafted, times drafts."""
        check_problem(problem)
        return float(problem.drafts.support.sum()) * problem.n

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Swap, and correct the swaps."""
        small, inverse = Support().apply(problem)
        clock.lap("reduce")
        target, drafts = small.target, small.drafts
        assert isinstance(drafts, WithoutReplacement)
        best_first = by_ratio(target, drafts.draft)
        alone = drafts.priority_marginals(best_first)
        order = best_first[::-1]
        order = order[drafts.draft[order] > 0.0]
        delta, subset, wanted = _pool(target, order, alone)
        steps, law = (order, np.ones(order.size)), alone
        least, corrections = _gap(delta, target, law), 0
        for pace in PACES if least > self.gap else ():
            mass = np.minimum(pace * _time(drafts.draft, drafts.n) * drafts.draft, SURE)
            aims, errors, sizes = [wanted], list[FloatArray](), list[float]()
            while least > self.gap and corrections < self.max_iterations:
                swapped = _swap(mass, order, alone, aims[-1])
                found = drafts._best_ranked(*swapped)
                corrections += 1
                gap = _gap(delta, target, found)
                if gap < least:
                    least, law, steps = gap, found, swapped
                errors = [*errors[-DEPTH:], wanted - found]
                sizes.append(float(np.abs(errors[-1]).sum()))
                if len(sizes) > PATIENCE and sizes[-1] >= STALLED * sizes[-1 - PATIENCE]:
                    break
                aims = [*aims[-DEPTH:], _next_aim(aims, errors, drafts.draft)]
        clock.lap("solve")
        if least > max(self.gap, PROVABLE) and corrections < self.max_iterations:
            return Orderings(gap=self.gap).answer(problem, clock)
        plan = RankPlan(small, law, *steps)
        lifted, dual = Support().invert(PrimalDual(plan, subset), inverse)
        clock.lap("recover")
        solved = least <= self.gap
        ended = "stalled" if corrections < self.max_iterations else "stopped"
        return Answer(
            lifted,
            Guarantee.OPTIMAL if least <= PROVABLE else Guarantee.LOSSLESS,
            dual,
            Status.SOLVED if solved else Status.ITERATION_LIMIT,
            "" if solved else f"the swaps {ended} at a gap of {least:.3g}; the plan is lossless",
            {"corrections": corrections, "ranks": steps[0].size},
        )


def _gap(delta: float, target: FloatArray, law: FloatArray) -> float:
    return 1.0 - delta - float(np.minimum(target, law).sum())


def _next_aim(aims: list[FloatArray], errors: list[FloatArray], draft: FloatArray) -> FloatArray:
    """What to aim at next: Anderson's combination of the last aims, each with its error."""
    changes = np.diff(errors, axis=0)
    weighted = np.divide(changes, draft, out=np.zeros_like(changes), where=draft > RARE)
    parts = np.linalg.lstsq(weighted @ changes.T, weighted @ errors[-1], rcond=None)[0]
    found: FloatArray = aims[-1] + errors[-1] - parts @ (np.diff(aims, axis=0) + changes)
    return found


def _time(draft: FloatArray, n: int) -> float:
    """When about n tokens have arrived, on average; they never all have."""
    count = min(n, np.count_nonzero(draft) - 0.5)
    time = count
    for _ in range(NEWTON_STEPS):
        survival = np.exp(-draft * time)
        rate = float(draft @ survival)
        if rate < RARE:
            break
        step = (count - draft.size + survival.sum()) / rate
        time += step
        if step < ROUGHLY * time:
            break
    return float(time)


def _pool(target: FloatArray, order: IntArray, alone: FloatArray) -> tuple[float, Mask, FloatArray]:
    """1 - alpha*, H*, and y, for tokens ordered by p/q ascending.

    Where v/p, v being what each has alone, rises along the ordering, neighbours pool what they
    have and share it in proportion to p: the antitonic regression of v/p, weighted by p.  Between
    two pools the ordering keeps all of one above the other, and in a pool y/q rises as p/q does,
    so y is a selection.
    """
    lack = np.cumsum(alone[order] - target[order])
    length = int(lack.argmax()) + 1 if lack.max(initial=0.0) > 0.0 else 0
    subset = np.zeros(alone.size, dtype=bool)
    subset[order[:length]] = True
    wanted, pooled = alone.copy(), order[target[order] > RARE]
    p, v = target[pooled], alone[pooled]
    regression = loaded("scipy.optimize").isotonic_regression
    wanted[pooled] = p * regression(v / p, weights=p, increasing=False).x
    return float(lack[length - 1]) if length else 0.0, subset, wanted


@compiled(error_model="numpy")
def _swap(
    mass: FloatArray, order: IntArray, alone: FloatArray, aim: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Swap places until each token would have `aim`, if the race went on, each arrival with a rank.

    A token has the best rank of its arrivals.  A place is as wide as its token arrives often: what
    it is worth falls by exp(-x) over the width x, and two tokens that swap equal widths leave those
    between them what they had, however likely the two are.  Tokens that need more give the bottom
    of their places for the top of those of later ones that need less, first come, first served.

    Parameters
    ----------
    mass : ndarray, shape (V,)
        How often each token arrives, on average.
    order : ndarray, shape (M,)
        The tokens, the lowest rank first.
    alone : ndarray, shape (V,)
        What each token has without swaps.
    aim : ndarray, shape (V,)

    Returns
    -------
    tokens, shares : ndarray, shape (K,)
        Whose rank each is, the lowest first, and how often; K <= 5 M.
    """
    size = order.size
    need, left, bottom = np.empty(size), mass[order], np.empty(size)
    sure = -np.expm1(-left)
    low, high = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
    moved = np.empty(2 * size)
    begin = np.zeros(size + 1, np.int64)
    swaps, a = 0, 0
    for b in range(size):
        need[b] = aim[order[b]] - alone[order[b]]
        top = alone[order[b]] / sure[b]
        bottom[b] = top * (1.0 - sure[b])
        while need[b] < 0.0 and left[b] > 0.0:
            while a < b and (need[a] <= 0.0 or left[a] <= 0.0):
                a += 1
            if a == b:
                break
            gain = min(need[a], -need[b])
            growth, most = _growth(gain, top, bottom[a]), min(left[a], left[b])
            part = np.log1p(growth)
            if part > most:
                part, growth = most, np.expm1(most)
                gain = min(gain, max(0.0, growth * (top / (1.0 + growth) - bottom[a])))
            top /= 1.0 + growth
            bottom[a] *= 1.0 + growth
            need[a] -= gain
            need[b] += gain
            left[a] -= part
            left[b] -= part
            low[swaps], high[swaps], moved[swaps] = a, b, part
            begin[a + 1] += 1
            begin[b + 1] += 1
            swaps += 1
    for k in range(size):
        begin[k + 1] += begin[k] + 1
    tokens, shares = np.empty(begin[size], np.int64), np.empty(begin[size])
    guest, reached = begin[:size].copy(), np.zeros(size)
    for k in range(size):
        token = order[k]
        own, above = begin[k], 0.0
        if aim[token] > alone[token]:
            own, reached[k] = begin[k + 1] - 1, left[k]
            above = mass[token] - left[k]
        else:
            guest[k] = begin[k + 1] - 1
        tokens[own], shares[own] = token, _share(above, left[k]) / sure[k]
    for swap in range(swaps):
        a, b, part = low[swap], high[swap], moved[swap]
        for here, other, on in ((a, b, 1), (b, a, -1)):
            token = order[other]
            reached[other] += part
            tokens[guest[here]] = token
            shares[guest[here]] = _share(mass[token] - reached[other], part) / sure[other]
            guest[here] += on
    return tokens, shares


@compiled
def _growth(gain: float, top: float, bottom: float) -> float:
    """exp(w) - 1 for the width w of a swap that gains so much, or infinity if none does."""
    half = 0.5 * (top - bottom - gain)
    rest = half * half - bottom * gain
    return gain / (half + np.sqrt(rest)) if half > 0.0 and rest >= 0.0 else np.inf


@compiled
def _share(above: float, part: float) -> float:
    """The chance of an arrival in this part and of none in what lies above."""
    return -float(np.exp(-above) * np.expm1(-part))
