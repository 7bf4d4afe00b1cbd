"""Many problems with i.i.d. drafts at once: what `Martingale` finds of each, bit for bit.

Each step is one pass over all rows, in NumPy or in a kernel, neither of which holds the
interpreter's lock: so threads run side by side even where V is small.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.certificate import GAP_TOLERANCE, LOSSLESS_TOLERANCE
from otlp.distribution import FloatArray, IntArray, Mask
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
        Probability vectors p and q, which are normalised here as by `otlp.as_distribution`.
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
    target, draft = _normalised(target), _normalised(draft)
    clock = Stopwatch()
    keys, sizes = np.empty_like(target), np.empty(len(target), np.int64)
    _write_keys(target, draft, keys, sizes)
    keys[:, : sizes.max()].sort(axis=1)
    clock.lap("reduce")
    subset, group = np.zeros(target.shape, np.bool_), np.zeros(target.shape, np.int32)
    selected, realised = np.empty_like(target), np.empty_like(target)
    work, index = scratch(target.shape[1])
    groups, ends, cells, shares = _solve_rows(
        target, draft, n, keys, sizes, work, index, subset, group, selected, realised
    )
    clock.lap("solve")
    acceptance, error = _marginals(target, selected, realised)
    inside, outside = (target * subset).sum(axis=1), (draft * ~subset).sum(axis=1)
    bound = [
        min(1.0, own + inclusion_probability(other, n))
        for own, other in zip(inside.tolist(), outside.tolist(), strict=True)
    ]
    gap = bound - acceptance
    proved = (groups > 0) & (error <= LOSSLESS_TOLERANCE)
    proved &= (-LOSSLESS_TOLERANCE <= gap) & (gap <= GAP_TOLERANCE)
    clock.lap("verify")
    seconds = vars(clock.read()).items()
    timings = Timings(**{part: spent / len(target) for part, spent in seconds})
    made: list[Solution | None] = [None] * len(target)
    for row in np.flatnonzero(proved):
        plan = None
        if plans:
            swaps = slice(ends[row], ends[row + 1])
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
        )
    return made


def _normalised(rows: FloatArray) -> FloatArray:
    return rows / rows.sum(axis=1, keepdims=True)


def _problem(target: FloatArray, draft: FloatArray, n: int) -> Problem:
    """Put a problem together of what is valid, as out of a pickle."""
    drafts, problem = IID.__new__(IID), Problem.__new__(Problem)
    drafts.__setstate__({"_n": n, "draft": draft})
    problem.__setstate__({"target": target, "drafts": drafts})
    return problem


@compiled
def _write_keys(target: FloatArray, draft: FloatArray, keys: FloatArray, sizes: IntArray) -> None:
    """Write the keys of each row and, for the sort, infinity behind them."""
    for row in range(sizes.size):
        sizes[row] = write_keys(target[row], draft[row], keys[row])
        keys[row, sizes[row] :] = np.inf


@compiled
def _solve_rows(
    target: FloatArray,
    draft: FloatArray,
    n: int,
    keys: FloatArray,
    sizes: IntArray,
    work: FloatArray,
    index: IndexArray,
    subset: Mask,
    group: IndexArray,
    selected: FloatArray,
    realised: FloatArray,
) -> tuple[IntArray, IntArray, IndexArray, FloatArray]:
    """Solve rows whose keys are sorted; no groups where p/q must be sorted again.

    Writes `subset`, `group`, `selected` and `realised`; returns the number of groups, where the
    swaps of each row end, and their groups and shares, those of `low` and those of `high`.
    """
    rows = sizes.size
    groups, ends = np.zeros(rows, np.int64), np.zeros(rows + 1, np.int64)
    cells, shares = np.empty((2, keys.size), np.int32), np.empty((2, keys.size))
    for row in range(rows):
        size, start = sizes[row], ends[row]
        stop = start
        work[RATIO, :size] = keys[row, :size]
        if unpack(target[row], draft[row], work, index[ORDER], size):
            groups[row], count = solve_sorted(
                draft[row], n, work, index, size, subset[row], selected[row], group[row]
            )
            stop += count
            cells[0, start:stop], cells[1, start:stop] = index[LOW, :count], index[HIGH, :count]
            shares[0, start:stop] = work[LOW_SHARE, :count]
            shares[1, start:stop] = work[HIGH_SHARE, :count]
            realised[row] = realised_distribution(
                group[row],
                cells[0, start:stop],
                cells[1, start:stop],
                shares[0, start:stop],
                shares[1, start:stop],
                draft[row],
                groups[row],
                n,
            )
        ends[row + 1] = stop
    return groups, ends, cells[:, : ends[rows]].copy(), shares[:, : ends[rows]].copy()


def _marginals(
    target: FloatArray, selected: FloatArray, realised: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Acceptance and L1 error of each row's output, as `SelectionPlan.marginals` gives them."""
    flat = accept_and_left(target.ravel(), selected.ravel())
    accept, left = (values.reshape(target.shape) for values in flat)
    total = left.sum(axis=1, keepdims=True)
    nothing = total[:, 0] <= 0.0
    left[nothing], total[nothing] = target[nothing], 1.0
    left /= total
    accepted = np.multiply(realised, accept, out=accept)
    acceptance = accepted.sum(axis=1)
    left *= np.maximum(0.0, 1.0 - acceptance)[:, None]
    left += accepted
    left -= target
    error: FloatArray = np.abs(left, out=left).sum(axis=1)
    return acceptance, error
