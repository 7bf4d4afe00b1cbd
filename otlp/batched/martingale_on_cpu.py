"""The `martingale` rule on a CPU: one kernel for bins, plan, selection and replacement of a row.

The kernel performs the same arithmetic in the same order as `otlp.batched.martingale_rule` in
PyTorch, row by row, and therefore returns the same tokens for the same random numbers.  The kernel
reads p and q of a row once, and once more if the selected draft is rejected.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf, isinf
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otlp.batched.numerics import TINY
from otlp.batched.ratio_bins import SIZE, UNIT, layout_for
from otlp.batched.rejection import is_drafted
from otlp.batched.residual import BLOCK
from otlp.batched.rows import Rows, by_rows
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled

Places = NDArray[np.uint16]


class CouplingArrays(NamedTuple):
    """Arrays of the coupling of a row over its bins; see `otlp.batched.coupling.Coupling`."""

    ratio: FloatArray
    level: FloatArray
    ends: FloatArray
    up: IntArray
    down: IntArray


GRAIN = 2**16
"""Number of entries above which another thread is started."""


def verify_on_cpu(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Verify rows as `otlp.batched.martingale` does, with the number of threads that PyTorch uses.

    Parameters
    ----------
    rows : Rows
        Rows on a CPU, as passed by the caller.
    numbers : Tensor, shape (B, 3 N + 2), float64

    Returns
    -------
    tokens, accepted : Tensor, shape (B,)
    """
    batch, width = max(len(numbers), 1), rows.target.shape[1] + SIZE
    threads = min(torch.get_num_threads(), 1 + batch * width // GRAIN)
    size = -(-batch // threads)
    parts = [slice(start, start + size) for start in range(0, batch, size)]

    def verify(part: slice) -> tuple[Tensor, ...]:
        return by_rows(_verify_some, Rows(*(one[part] for one in rows)), numbers[part])

    if len(parts) == 1:
        (tokens,) = verify(parts[0])
    else:
        with ThreadPoolExecutor(len(parts)) as pool:
            tokens = torch.cat([found for (found,) in pool.map(verify, parts)])
    return tokens, is_drafted(rows, tokens)


def _verify_some(rows: Rows, numbers: Tensor) -> tuple[Tensor]:
    layout = layout_for(rows.tokens.shape[1])
    low, high = (edge.numpy() for edge in layout.edges(rows.target.device))
    drafts = rows.tokens.clamp(min=0)
    # The kernel does not check that tokens lie in the vocabulary; `gather` does.
    at = (part.gather(1, drafts).double() for part in (rows.target, rows.draft))
    given = (rows.target, rows.draft, *at, drafts, rows.drafted, numbers)
    p, q, p_at, q_at, tokens, drafted, uniform = (part.numpy() for part in given)
    found = np.empty(len(numbers), np.int64)
    shape = layout.shift, layout.offset, layout.size
    _verify_rows(p, q, p_at, q_at, tokens, drafted, uniform, found, low, high, *shape)
    return (torch.from_numpy(found),)


@compiled
def _verify_rows(
    p: FloatArray,
    q: FloatArray,
    p_at: FloatArray,
    q_at: FloatArray,
    tokens: IntArray,
    drafted: IntArray,
    numbers: FloatArray,
    found: IntArray,
    low: FloatArray,
    high: FloatArray,
    shift: int,
    offset: int,
    size: int,
) -> None:
    batch, max_n = tokens.shape
    bins = np.empty(p.shape[1], np.uint16)
    masses = np.empty((size, 2), np.int64)
    ratio, level, ends = np.empty(size), np.empty(size), np.empty(size)
    plan = CouplingArrays(ratio, level, ends, np.empty(size, np.int64), np.empty(size, np.int64))
    for row in range(batch):
        n = 0
        for place in range(max_n):
            n += drafted[row, place]
        best, cut = 0, 0.0
        if n > 0:
            masses[:] = 0
            _add_up(p[row], q[row], shift, offset, bins, masses)
            first, last, scale = _couple(masses, low, high, n, max_n, plan)
            highest = -1.0
            for place in range(max_n):
                if drafted[row, place]:
                    own_ratio = p_at[row, place] / q_at[row, place]
                    own = _bin(own_ratio, shift, offset, size)
                    cell = 0 if own < first else own
                    if own >= last:
                        cell = size - 1
                    r = own_ratio * scale if isinf(level[own]) else ratio[cell]
                    which, move, at = numbers[row, place : 3 * max_n : max_n]
                    score = _score(cell, r, which, move, at, n, plan)
                    if score > highest:
                        best, highest, cut = place, score, level[own]
            drawn = q_at[row, best] * cut
            if isinf(cut) or numbers[row, 3 * max_n] * drawn < p_at[row, best]:
                found[row] = tokens[row, best]
                continue
        else:
            bins[:], level[:] = 0, 0.0
        found[row] = _draw_residual(p[row], q[row], level, bins, numbers[row, 3 * max_n + 1])


@compiled
def _bin(ratio: float, shift: int, offset: int, size: int) -> int:
    bits = int(np.array([ratio], np.float32).view(np.int32)[0])
    return min(max((bits >> shift) - offset, 0), size - 1)


@compiled
def _add_up(
    p: FloatArray,
    q: FloatArray,
    shift: int,
    offset: int,
    bins: Places,
    masses: IntArray,
) -> None:
    """Compute the bins of all tokens, and add up the masses of p and q in each bin, in units."""
    ratio = np.empty(BLOCK, np.float32)
    bits = ratio.view(np.int32)
    # With other integer types the loops are not vectorised.
    by, least, last = np.int32(shift), np.int32(offset), np.int32(len(masses) - 1)
    for start in range(0, p.size, BLOCK):
        # Loops over slices are vectorised.
        p_block, q_block = p[start : start + BLOCK], q[start : start + BLOCK]
        found = bins[start : start + BLOCK]
        for x in range(p_block.size):
            ratio[x] = p_block[x] / q_block[x]
        for x in range(p_block.size):
            found[x] = min(max((bits[x] >> by) - least, np.int32(0)), last)
        for x in range(p_block.size):
            at = found[x]
            masses[at, 0] += int(p_block[x] * UNIT)
            masses[at, 1] += int(q_block[x] * UNIT)


@compiled
def _power(base: float, n: int) -> float:
    found = base if n & 1 else 1.0
    n >>= 1
    while n:
        base = base * base
        if n & 1:
            found = found * base
        n >>= 1
    return found


@compiled
def _couple(
    masses: IntArray, low: FloatArray, high: FloatArray, n: int, max_n: int, plan: CouplingArrays
) -> tuple[int, int, float]:
    """Store the coupling of `otlp.batched.coupling.couple` in the arrays of a plan.

    Returns `first`, `last` and `scale`.
    """
    ratio, level, ends, up, down = plan
    size, target, draft = len(masses), masses[:, 0], masses[:, 1]
    p_units, q_units = target.sum(), draft.sum()
    total = float(q_units)
    scale = total / float(p_units)
    held = up  # Share the memory; `up` is written after the last use of `held`.
    before, delta = 0, 0.0
    sums = np.empty(size, np.int64)
    for b in range(size):
        mean = min(max(target[b] / max(draft[b], 1), low[b]), high[b])
        ratio[b] = min(mean * scale, float(max_n))
        before += draft[b]
        sums[b] = before
        held[b] = int(ratio[b] * draft[b]) + (held[b - 1] if b else 0)
        delta = max(delta, _power(before / total, n) - held[b] / total)
    first, last = 0, 0
    for b in range(size):
        end, above, kept = sums[b] / total, (q_units - sums[b]) / total, held[b] / total
        first += end * ratio[b] - kept <= delta
        last += above * ratio[b] + kept <= 1.0 - delta
    first = max(first, 1)
    floor = (delta + held[first - 1] / total) / max(sums[first - 1] / total, TINY)
    floor = max(floor, ratio[first - 1])
    if first < size:
        floor = min(floor, ratio[first])
    ceiling = 1.0 - delta
    if last:
        above = (q_units - sums[last - 1]) / total
        ceiling = max((1.0 - held[last - 1] / total - delta) / max(above, TINY), ratio[last - 1])
    ceiling = max(min(ceiling, ratio[min(last, size - 1)]), floor)
    last = max(first, last)

    lowest, highest = sums[first - 1], sums[last - 1]
    before, reached, rising, falling = 0, 0.0, 0, 0
    least_w = 1.0 if n == 1 else 0.0
    for b in range(size):
        ratio[b] = min(max(ratio[b], floor), ceiling)
        level[b] = ratio[b] / scale
        # Mark pure bins.
        lowest_ratio, highest_ratio = low[b] * scale, high[b] * scale
        most_w = n * _power(sums[b] / total, n - 1)
        if b > 0 and lowest_ratio >= floor and highest_ratio <= ceiling:
            if lowest_ratio >= most_w or highest_ratio <= least_w:
                level[b] = inf
        least_w = most_w
        stop = q_units if b == size - 1 else min(max(sums[b], lowest), highest)
        ends[b] = stop / total
        power = _power(ends[b], n)
        mass = (stop - before) / total
        need = int((mass * ratio[b] - (power - reached)) * UNIT)
        before, reached = stop, power
        rising += max(need, 0)
        falling += max(-need, 0)
        up[b], down[b] = rising, falling
    return first, last, scale


@compiled
def _mean_of_powers(a: float, b: float, n: int) -> float:
    mean, power = 1.0, a
    for _ in range(1, n):
        mean = mean * b + power
        power = power * a
    return mean


@compiled
def _partner(own: IntArray, other: IntArray, cell: int, which: float, top: int) -> int:
    """Return a random partner of a cell, by its need; the cell itself if it has no need."""
    start = own[cell - 1] if cell else 0
    width = own[cell] - start
    if width <= 0:
        return cell
    draw = min(start + min(int(which * width), width - 1), top)
    return min(int(np.searchsorted(other, draw, side="right")), own.size - 1)


@compiled
def _score(
    cell: int, ratio: float, which: float, move: float, place: float, n: int, plan: CouplingArrays
) -> float:
    _, _, ends, up, down = plan
    top = min(up[-1], down[-1]) - 1
    partner = _partner(up, down, cell, which, top)
    if partner == cell:
        partner = _partner(down, up, cell, which, top)
    here = _mean_of_powers(ends[cell - 1] if cell else 0.0, ends[cell], n)
    there = _mean_of_powers(ends[partner - 1] if partner else 0.0, ends[partner], n)
    gap = there - here
    chance = (ratio - here) / (TINY if gap == 0.0 else gap)
    if move < min(max(chance, 0.0), 1.0):
        cell = partner
    start = ends[cell - 1] if cell else 0.0
    return float(start + (ends[cell] - start) * place)


@compiled
def _draw_residual(
    p: FloatArray, q: FloatArray, level: FloatArray, bins: Places, uniform: float
) -> int:
    """Draw a token from (p - y)^+; see `otlp.batched.residual.draw_residual`."""
    level *= UNIT  # Infinite where y = p, which makes the residual zero.
    sums = np.empty((p.size + BLOCK - 1) // BLOCK, np.int64)
    weights = np.empty(BLOCK, np.int64)
    total = 0
    for block in range(sums.size):
        total += _weigh(p, q, level, bins, BLOCK * block, weights)
        sums[block] = total
    if total <= 0:
        return int(np.argmax(p))
    draw = min(int(uniform * total), total - 1)
    block = int(np.searchsorted(sums, draw, side="right"))
    _weigh(p, q, level, bins, BLOCK * block, weights)
    draw -= sums[block - 1] if block else 0
    x, last = 0, p.size - 1 - BLOCK * block  # Unchecked rows of NaN must not index out of range.
    while x < min(BLOCK - 1, last) and draw >= weights[x]:
        draw -= weights[x]
        x += 1
    return BLOCK * block + min(x, last)


@compiled
def _weigh(
    p: FloatArray,
    q: FloatArray,
    level: FloatArray,
    bins: Places,
    start: int,
    weights: IntArray,
) -> int:
    """Store the residuals of a block of tokens, in units, and return their sum."""
    p_block, q_block = p[start : start + BLOCK], q[start : start + BLOCK]
    shared = bins[start : start + BLOCK]
    total = 0
    for x in range(p_block.size):
        left = int(max(p_block[x] * UNIT - q_block[x] * level[shared[x]], 0.0))
        weights[x] = left
        total += left
    return total
