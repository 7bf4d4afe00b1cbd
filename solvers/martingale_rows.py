"""Many problems with i.i.d. drafts at once: what `Martingale` finds of each, bit for bit.

Each step is one pass over all rows, in NumPy or in a kernel, neither of which holds the
interpreter's lock: so threads run side by side even where V is small.
"""

from __future__ import annotations

import numpy as np

from otlp.certificate import puts_out_target, reaches
from otlp.distribution import FloatArray, IntArray, Mask, frozen
from otlp.drafts import IID
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability
from otlp.plan.selection import accept_and_left
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, Status
from otlp.solvers.martingale import (
    HIGH,
    HIGH_SHARE,
    LOW,
    LOW_SHARE,
    ORDER,
    RATIO,
    Martingale,
    scratch,
    solve_sorted,
    unpack,
    write_keys,
)
from otlp.solvers.score_laws import IndexArray, Swaps, realised_distribution
from otlp.solvers.score_plan import ScorePlan
from otlp.timing import Stopwatch, Timings


def solve_rows(target: FloatArray, draft: FloatArray, n: int, plans: bool) -> list[Solution | None]:
    """Solve and certify the problem of each row.

    Parameters
    ----------
    target, draft : ndarray, shape (R, V)
        Probability vectors p and q: normalised in place, as by `otlp.as_distribution`, and kept.
    n : int
        Number of drafts.
    plans : bool
        Keep the plans.

    Returns
    -------
    list of Solution or None
        As `Martingale().solve` finds it, with the mean timings of all rows.  None stands for a row
        that must be solved by itself: to sort its ratios again, or to say what is wrong with it.

    Notes
    -----
    O(R V log V).  What a row keeps are views of arrays of all rows.
    """
    for given in (target, draft):
        given /= given.sum(axis=1, keepdims=True)
        frozen(given)
    clock = Stopwatch()
    keys, sizes = np.empty_like(target), np.empty(len(target), np.int64)
    _write_keys(target, draft, keys, sizes)
    keys[:, : sizes.max()].sort(axis=1)
    clock.lap("reduce")
    subset, group = np.zeros(target.shape, np.bool_), np.zeros(target.shape, np.int32)
    selected, left = np.empty_like(target), np.empty_like(target)
    ends = np.append(0, sizes.cumsum()) if plans else np.zeros(len(target) + 1, np.int64)
    cells, shares = np.empty((2, ends[-1]), np.int32), np.empty((2, ends[-1]))
    groups, counts = _solve_rows(
        target, draft, n, sizes, ends, keys, subset, group, selected, left, cells, shares,
        *scratch(target.shape[1]),
    )  # fmt: skip
    clock.lap("solve")
    acceptance, error = _marginals(target, accepted=keys, left=left)
    inside = np.multiply(target, subset, out=keys).sum(axis=1)
    outside = np.multiply(draft, ~subset, out=keys).sum(axis=1)
    bound = [
        min(1.0, own + inclusion_probability(other, n))
        for own, other in zip(inside.tolist(), outside.tolist(), strict=True)
    ]
    proved = (groups > 0) & puts_out_target(error) & reaches(acceptance, np.array(bound))
    clock.lap("verify")
    seconds = vars(clock.read()).items()
    timings = Timings(**{part: spent / len(target) for part, spent in seconds})
    made: list[Solution | None] = [None] * len(target)
    for row in np.flatnonzero(proved):
        plan = None
        if plans:
            swaps = slice(ends[row], ends[row] + counts[row])
            plan = ScorePlan(
                _problem(target[row], draft[row], n),
                selected[row],
                Swaps(groups[row], group[row], *cells[:, swaps], *shares[:, swaps]),
            )
        made[row] = Solution(
            solver=Martingale.name,
            status=Status.SOLVED,
            guarantee=Guarantee.OPTIMAL,
            plan=plan,
            acceptance=float(acceptance[row]),
            upper_bound=bound[row],
            subset=subset[row],
            marginal_error=float(error[row]),
            marginal_method="closed form",
            timings=timings,
            details={"block": len(target)},
        )
    return made


def _problem(target: FloatArray, draft: FloatArray, n: int) -> Problem:
    """Put a problem together of what is valid, as out of a pickle."""
    drafts, problem = IID.__new__(IID), Problem.__new__(Problem)
    vars(drafts).update(_n=n, draft=draft)
    vars(problem).update(target=target, drafts=drafts)
    return problem


@compiled
def _write_keys(target: FloatArray, draft: FloatArray, keys: FloatArray, sizes: IntArray) -> None:
    """Write the keys of each row and, for the sort, infinity behind them."""
    for row in range(sizes.size):
        sizes[row] = write_keys(target[row], draft[row], keys[row])
        keys[row, sizes[row] :] = np.inf


@compiled(error_model="numpy")
def _solve_rows(
    target: FloatArray,
    draft: FloatArray,
    n: int,
    sizes: IntArray,
    starts: IntArray,
    keys: FloatArray,
    subset: Mask,
    group: IndexArray,
    selected: FloatArray,
    left: FloatArray,
    cells: IndexArray,
    shares: FloatArray,
    work: FloatArray,
    index: IndexArray,
) -> tuple[IntArray, IntArray]:
    """Solve rows whose keys are sorted: the numbers of groups and swaps of each.

    No groups where p/q must be sorted again.  Over the keys goes the accepted mass of each token,
    to `left` that of p above y, and to `cells` and `shares`, if they have room, the swaps.
    """
    groups, counts = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.int64)
    for row in range(sizes.size):
        p, q, size = target[row], draft[row], sizes[row]
        for k in range(size):
            work[RATIO, k] = keys[row, k]
        if not unpack(p, q, work, index[ORDER], size):
            keys[row], left[row] = 0.0, 0.0
            continue
        groups[row], counts[row] = solve_sorted(
            q, n, work, index, size, subset[row], selected[row], group[row]
        )
        low, high = index[LOW, : counts[row]], index[HIGH, : counts[row]]
        low_share, high_share = work[LOW_SHARE, : counts[row]], work[HIGH_SHARE, : counts[row]]
        realised = realised_distribution(
            group[row], low, high, low_share, high_share, q, groups[row], n
        )
        accept, rest = accept_and_left(p, selected[row])
        for i in range(p.size):
            keys[row, i], left[row, i] = realised[i] * accept[i], rest[i]
        if cells.size > 0:
            start = starts[row]
            for t in range(counts[row]):
                cells[0, start + t], cells[1, start + t] = low[t], high[t]
                shares[0, start + t], shares[1, start + t] = low_share[t], high_share[t]
    return groups, counts


def _marginals(
    target: FloatArray, accepted: FloatArray, left: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Acceptance and L1 error of each row, as from `SelectionPlan.marginals`; overwrites `left`."""
    total = left.sum(axis=1, keepdims=True)
    nothing = total[:, 0] <= 0.0
    left[nothing], total[nothing] = target[nothing], 1.0
    left /= total
    acceptance = accepted.sum(axis=1)
    left *= np.maximum(0.0, 1.0 - acceptance)[:, None]
    left += accepted
    left -= target
    error: FloatArray = np.abs(left, out=left).sum(axis=1)
    return acceptance, error
