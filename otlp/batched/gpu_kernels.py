"""Triton kernels of the `martingale` rule, equivalent to `martingale_rule` in PyTorch.

First, the masses of p and q in each bin are summed, in integers.  Then one program per row computes
the plan, selects a draft and accepts or rejects it.  For a rejected draft, the residual of p is
summed and a token is drawn from it.  `add_up` and `weigh` cut a row into parts, so that a few rows
also occupy a GPU; sums of integers do not depend on the cuts.  The target may be given by logits
and scales instead of p; p is then recomputed wherever it is read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from otlp.batched.numerics import TINY
from otlp.batched.ratio_bins import SIZE, UNIT

_TINY, _UNIT, _SIZE = tl.constexpr(TINY), tl.constexpr(UNIT), tl.constexpr(SIZE)
_STEPS = tl.constexpr(SIZE.bit_length())


@triton.jit
def _ratio(p, q):
    """Return the ratio p / q, rounded once, as PyTorch computes it."""
    if (p.dtype == tl.float64) or (q.dtype == tl.float64):
        ratio = (p.to(tl.float64) / q.to(tl.float64)).to(tl.float32)
    else:
        ratio = tl.div_rn(p, q)
    return ratio


@triton.jit
def _bin(ratio, SHIFT: tl.constexpr, OFFSET: tl.constexpr):
    bits = ratio.to(tl.int32, bitcast=True)
    return tl.minimum(tl.maximum((bits >> SHIFT) - OFFSET, 0), _SIZE - 1)


@triton.jit
def _read(row, at, inside):
    """Load entries of a row; half precision is converted to float32 without rounding."""
    values = tl.load(row + at, mask=inside, other=0.0)
    if values.dtype != tl.float64:
        values = values.to(tl.float32)
    return values


@triton.jit
def _load_p(row, at, inside, scales):
    """Load entries of a row of p, or compute them from logits in float32 if scales are given."""
    if scales is None:
        p = _read(row, at, inside)
    else:
        logits = tl.load(row + at, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.exp((logits - tl.load(scales)) * tl.load(scales + 1)) * tl.load(scales + 2)
    return p


@triton.jit
def normalise(logits, temperatures, scales, V, TILE: tl.constexpr):
    """Store the scales of a row of logits: largest logit, 1 / temperature and 1 / normaliser."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * V
    slope = 1.0 / tl.load(temperatures + row)
    highest = tl.full([TILE], float("-inf"), tl.float32)
    for start in range(0, V, TILE):
        at = start + tl.arange(0, TILE)
        here = tl.load(logits + at, mask=at < V, other=float("-inf")).to(tl.float32)
        highest = tl.maximum(highest, here)
    top, total = tl.max(highest, 0), tl.zeros([TILE], tl.float32)
    for start in range(0, V, TILE):
        at = start + tl.arange(0, TILE)
        here = tl.load(logits + at, mask=at < V, other=float("-inf")).to(tl.float32)
        total += tl.exp((here - top) * slope)
    tl.store(scales + 3 * row, top)
    tl.store(scales + 3 * row + 1, slope)
    tl.store(scales + 3 * row + 2, 1.0 / tl.sum(total, 0))


@triton.jit
def _row_scales(scales, row):
    if scales is not None:
        scales += 3 * row
    return scales


@triton.jit
def add_up(
    target, draft, scales, masses, V,
    SHIFT: tl.constexpr, OFFSET: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Add up the masses of p and q in the bins of a row (_SIZE, 2), in units."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    for start in range(part * TILE, V, tl.num_programs(1) * TILE):
        at = start + tl.arange(0, TILE)
        p = _load_p(target + row * V, at, at < V, _row_scales(scales, row))
        q = _read(draft + row * V, at, at < V)
        to = masses + 2 * (row * _SIZE + _bin(_ratio(p, q), SHIFT, OFFSET))
        p_units = (p.to(tl.float64) * _UNIT).to(tl.int64)
        q_units = (q.to(tl.float64) * _UNIT).to(tl.int64)
        tl.atomic_add(to, p_units, mask=p_units > 0, sem="relaxed")
        tl.atomic_add(to + 1, q_units, mask=q_units > 0, sem="relaxed")


@triton.jit
def _power(base, n):
    found = tl.where((n & 1) > 0, base, 1.0)
    rest = n >> 1
    while rest > 0:
        base = base * base
        found = tl.where((rest & 1) > 0, found * base, found)
        rest = rest >> 1
    return found


@triton.jit
def _at(values, places, place):
    """Return the value at `place`, or 0 if no element has this place."""
    return tl.sum(tl.where(places == place, values, 0), 0)


@triton.jit
def _before(prefix, place):
    """Load an inclusive prefix sum just before `place`."""
    return tl.load(prefix + place - 1, mask=place > 0, other=0)


@triton.jit
def _search(prefix, level):
    """Count the prefix sums in memory that are at most `level`."""
    found = tl.zeros_like(level)
    for step in tl.static_range(_STEPS):
        further = found + (_SIZE >> step)
        below = tl.load(prefix + further - 1, mask=further <= _SIZE, other=level) <= level
        found = tl.where(below & (further <= _SIZE), further, found)
    return found


@triton.jit
def _mean_of_powers(left, right, n):
    mean = left * 0.0 + 1.0
    power = left
    for _ in range(1, n):
        mean = mean * right + power
        power = power * left
    return mean


@triton.jit
def _couple(masses, edges, plan, sums, levels, n, N: tl.constexpr):
    """Store the coupling of the bins of a row; see `otlp.batched.coupling.couple`."""
    # A row without drafts selects nothing; avoid n = 0.
    power = tl.maximum(n, 1)
    b = tl.arange(0, _SIZE)
    held = tl.load(masses + 2 * b)
    mass = tl.load(masses + 2 * b + 1)
    q_sum = tl.sum(mass, 0)
    total = q_sum.to(tl.float64)
    scale = total / tl.sum(held, 0).to(tl.float64)
    ratio = held.to(tl.float64) / tl.maximum(mass, 1).to(tl.float64)
    ratio = tl.maximum(ratio, tl.load(edges + b))
    ratio = tl.minimum(ratio, tl.load(edges + _SIZE + b))
    ratio = tl.minimum(ratio * scale, N)
    drafted = tl.cumsum(mass, 0)
    below = tl.cumsum((ratio * mass.to(tl.float64)).to(tl.int64), 0).to(tl.float64) / total
    ends = drafted.to(tl.float64) / total
    above = (q_sum - drafted).to(tl.float64) / total
    delta = tl.maximum(tl.max(_power(ends, power) - below, 0), 0.0)

    first = tl.maximum(tl.sum((ends * ratio - below <= delta).to(tl.int32), 0), 1)
    floor = (delta + _at(below, b, first - 1)) / tl.maximum(_at(ends, b, first - 1), _TINY)
    floor = tl.maximum(floor, _at(ratio, b, first - 1))
    floor = tl.where(first < _SIZE, tl.minimum(floor, _at(ratio, b, first)), floor)
    last = tl.sum((above * ratio + below <= 1.0 - delta).to(tl.int32), 0)
    beyond = tl.where(last > 0, _at(above, b, last - 1), 1.0)
    ceiling = (1.0 - _at(below, b, last - 1) - delta) / tl.maximum(beyond, _TINY)
    ceiling = tl.maximum(ceiling, _at(ratio, b, last - 1))
    ceiling = tl.minimum(ceiling, _at(ratio, b, tl.minimum(last, _SIZE - 1)))
    ceiling = tl.maximum(ceiling, floor)
    last = tl.maximum(first, last)
    ratio = tl.minimum(tl.maximum(ratio, floor), ceiling)

    # All bins at the floor share one cell, and so do all at the ceiling; their other cells are
    # empty.
    low, high = _at(drafted, b, first - 1), _at(drafted, b, last - 1)
    stop = tl.minimum(tl.maximum(drafted, low), high)
    stop = tl.where(b == _SIZE - 1, q_sum, stop)
    begin = tl.minimum(tl.maximum(drafted - mass, low), high)
    begin = tl.where(b == 0, 0, begin)
    ends = stop.to(tl.float64) / total
    rise = _power(ends, power) - _power(begin.to(tl.float64) / total, power)
    need = (((stop - begin).to(tl.float64) / total * ratio - rise) * _UNIT).to(tl.int64)
    up, down = tl.cumsum(tl.maximum(need, 0), 0), tl.cumsum(tl.maximum(-need, 0), 0)
    level = tl.where(n > 0, ratio / scale, 0.0)
    low, high = tl.load(edges + b) * scale, tl.load(edges + _SIZE + b) * scale
    before = tl.where(b > 0, (drafted - mass).to(tl.float64) / total, 0.0)
    least_w = power * _power(before, power - 1)
    most_w = power * _power(drafted.to(tl.float64) / total, power - 1)
    pure = (b > 0) & (low >= floor) & (high <= ceiling)
    pure = pure & ((low >= most_w) | (high <= least_w))
    level = tl.where(pure & (n > 0), float("inf"), level)
    tl.store(levels + b, level)
    tl.store(plan + b, ratio)
    tl.store(plan + _SIZE + b, ends)
    tl.store(sums + b, up)
    tl.store(sums + _SIZE + b, down)
    top = tl.minimum(tl.sum(tl.maximum(need, 0), 0), tl.sum(tl.maximum(-need, 0), 0)) - 1
    # Other threads of this program read the stored arrays below.
    tl.debug_barrier()
    return first, last, scale, top


@triton.jit
def select(
    p_at, q_at, scales, tokens, numbers, masses, edges, plan, sums, levels, found,
    N: tl.constexpr, WIDE: tl.constexpr, SHIFT: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Compute the plan of a row, select a draft, and store its token, or -1 if it is rejected."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WIDE)
    token = tl.load(tokens + row * N + places, mask=places < N, other=-1)
    real = token >= 0
    n = tl.sum(real.to(tl.int64), 0)
    power = tl.maximum(n, 1)
    levels += row * _SIZE
    plan += row * 2 * _SIZE
    sums += row * 2 * _SIZE
    first, last, scale, top = _couple(masses + row * 2 * _SIZE, edges, plan, sums, levels, n, N)

    p = _load_p(p_at + row * N, places, real, _row_scales(scales, row))
    q = _read(q_at + row * N, places, real)
    own = _bin(_ratio(p, q), SHIFT, OFFSET)
    cell = tl.where(own >= last, _SIZE - 1, tl.where(own < first, 0, own))
    numbers += row * (3 * N + 2)
    which = tl.load(numbers + places, mask=real, other=0.0)
    move = tl.load(numbers + N + places, mask=real, other=0.0)
    place = tl.load(numbers + 2 * N + places, mask=real, other=0.0)
    partner = cell
    for side in tl.static_range(2):
        start = _before(sums + side * _SIZE, cell)
        width = tl.load(sums + side * _SIZE + cell) - start
        share = tl.minimum((which * width.to(tl.float64)).to(tl.int64), width - 1)
        reached = _search(sums + (1 - side) * _SIZE, tl.minimum(start + share, top))
        partner = tl.where(width > 0, tl.minimum(reached, _SIZE - 1).to(tl.int32), partner)
    left, right = _before(plan + _SIZE, cell), tl.load(plan + _SIZE + cell)
    here = _mean_of_powers(left, right, power)
    there = _mean_of_powers(_before(plan + _SIZE, partner), tl.load(plan + _SIZE + partner), power)
    gap = there - here
    level = tl.load(levels + own)
    own_ratio = p.to(tl.float64) / q.to(tl.float64) * scale
    r = tl.where(level == float("inf"), own_ratio, tl.load(plan + cell))
    chance = (r - here) / tl.where(gap == 0.0, _TINY, gap)
    cell = tl.where(move < tl.minimum(tl.maximum(chance, 0.0), 1.0), partner, cell)
    left = _before(plan + _SIZE, cell)
    score = tl.where(real, left + (tl.load(plan + _SIZE + cell) - left) * place, -1.0)
    best = tl.min(tl.where(score == tl.max(score, 0), places, WIDE), 0)

    accept = tl.load(numbers + 3 * N)
    keep = (accept * (q.to(tl.float64) * level) < p.to(tl.float64)) | (level == float("inf"))
    keep = (_at(keep.to(tl.int32), places, best) > 0) & (n > 0)
    tl.store(found + row, tl.where(keep, _at(token, places, best), -1))


@triton.jit
def _residual(target, draft, scales, levels, row, at, V, SHIFT: tl.constexpr, OFFSET: tl.constexpr):
    """Return the residual of p at some tokens, in units."""
    p = _load_p(target + row * V, at, at < V, _row_scales(scales, row))
    q = _read(draft + row * V, at, at < V)
    level = tl.load(levels + row * _SIZE + _bin(_ratio(p, q), SHIFT, OFFSET)) * _UNIT
    left = p.to(tl.float64) * _UNIT - q.to(tl.float64) * level
    return tl.maximum(left, 0.0).to(tl.int64)


@triton.jit
def weigh(
    target, draft, scales, levels, found, weights, V, TILES,
    SHIFT: tl.constexpr, OFFSET: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Store the residual mass of each tile (TILES,), in units, for rows that reject."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(found + row) < 0:
        for tile in range(part, TILES, tl.num_programs(1)):
            at = tile * TILE + tl.arange(0, TILE)
            left = _residual(target, draft, scales, levels, row, at, V, SHIFT, OFFSET)
            tl.store(weights + row * TILES + tile, tl.sum(left, 0))


@triton.jit
def replace(
    target, draft, scales, levels, found, weights, numbers, V, TILES, COUNT,
    SHIFT: tl.constexpr, OFFSET: tl.constexpr, TILE: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Draw a token from the residual of p, for rows that reject."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(found + row) < 0:
        tiles = tl.arange(0, WIDE)
        sums = tl.cumsum(tl.load(weights + row * TILES + tiles, mask=tiles < TILES, other=0), 0)
        total = tl.max(sums, 0)
        if total > 0:
            uniform = tl.load(numbers + (row + 1) * COUNT - 1)
            draw = tl.minimum((uniform * total.to(tl.float64)).to(tl.int64), total - 1)
            tile = tl.sum((sums <= draw).to(tl.int32), 0)
            draw -= _at(sums, tiles, tile - 1)
            at = tile * TILE + tl.arange(0, TILE)
            left = _residual(target, draft, scales, levels, row, at, V, SHIFT, OFFSET)
            passed = tl.sum((tl.cumsum(left, 0) <= draw).to(tl.int32), 0)
            tl.store(found + row, (tile * TILE + passed).to(tl.int64))
        else:  # Only rounding can reject with a zero residual; store the most likely token.
            highest, most_likely = 0.0, 0
            for tile in range(0, TILES):
                at = tile * TILE + tl.arange(0, TILE)
                p = _load_p(target + row * V, at, at < V, _row_scales(scales, row)).to(tl.float32)
                if tl.max(p, 0) > highest:
                    highest, most_likely = tl.max(p, 0), tile * TILE + tl.argmax(p, 0)
            tl.store(found + row, tl.cast(most_likely, tl.int64))
