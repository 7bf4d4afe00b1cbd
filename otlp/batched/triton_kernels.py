"""The two-slice step and block verification as Triton kernels: a program takes some rows at once.

Experimental, and never chosen unless asked for: only Triton's interpreter has run them.
Triton compiles them for a GPU; with ``TRITON_INTERPRET=1`` in the environment before this module is
imported they run on a CPU, slowly, which is how they are tested.  The formulas are those of
`otlp.batched.two_slice` and `otlp.batched.paths`, in float64, operation by operation.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from otlp.batched.numerics import ROOT_STEPS, SECTION_STEPS, SECTIONS, SETTLED, TINY
from otlp.batched.two_slice import SPREAD, BatchedScoreLaw, TwoSlice

ENTRIES = 2**15 if os.environ.get("TRITON_INTERPRET") == "1" else 2**11
"""Of the vocabulary that a program looks at together, over all of its rows.

The interpreter takes as long for a program, whatever its size.
"""

INFINITY = float("inf")

_TINY = tl.constexpr(TINY)
_SPREAD = tl.constexpr(SPREAD)
_INFINITY = tl.constexpr(INFINITY)
_SECTIONS = tl.constexpr(SECTIONS)
_SECTION_STEPS = tl.constexpr(SECTION_STEPS)
_ROOT_STEPS = tl.constexpr(ROOT_STEPS)
_SETTLED = tl.constexpr(SETTLED)


def two_slice_kernel(law: BatchedScoreLaw, target: Tensor, draft: Tensor, paths: int) -> TwoSlice:
    """`otlp.batched.two_slice_step`, as one kernel; arguments and result are those."""
    nodes, size = target.shape
    cells = law.density.shape[1]
    found = torch.empty(7, nodes, 1, dtype=torch.float64, device=target.device)
    rows, block = _tile(nodes, size)
    _two_slice[(triton.cdiv(nodes, rows),)](
        law.edges.contiguous(), law.density.contiguous(), law.gain, law.weight,
        target.contiguous(), draft.contiguous(), found, nodes, cells, size,
        K=paths, R=rows, D=triton.next_power_of_2(cells), HALVINGS=(cells - 1).bit_length(),
        BLOCK=block,
    )  # fmt: skip
    threshold, lower, upper, lower_mean, upper_mean, lower_scale, upper_scale = found.unbind()
    return TwoSlice(
        threshold, lower, upper, lower_mean, upper_mean, law.weight, lower_scale, upper_scale
    )


def block_kernel(
    p: Tensor, q: Tensor, splits: list[TwoSlice], weights: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """`otlp.batched.paths.accept_block`, as one kernel; arguments and result are those."""
    batch, length, size = q.shape
    parts = torch.stack(
        [
            torch.cat(
                [
                    one.lower, one.upper, one.lower_mean, one.upper_mean,
                    one.lower_scale, one.upper_scale,
                ],
                1,
            )
            for one in splits
        ],
        1,
    )  # fmt: skip
    accepted, last = torch.empty(2, batch, dtype=torch.int64, device=p.device).unbind()
    rows, block = _tile(batch, size)
    _block[(triton.cdiv(batch, rows),)](
        p.contiguous(), q.contiguous(), parts.contiguous(), weights.contiguous(),
        numbers.contiguous(), accepted, last, batch, length, size,
        R=rows, BLOCK=block,
    )  # fmt: skip
    return accepted, last


def _tile(rows: int, size: int) -> tuple[int, int]:
    """Rows of a program, and tokens that it looks at together."""
    block = min(triton.next_power_of_2(size), ENTRIES)
    return min(triton.next_power_of_2(rows), max(ENTRIES // block, 1)), block


@triton.jit
def _means(u, left, right, density, gain, K: tl.constexpr):
    """Masses and means of W / R below and above thresholds u, all (R, S)."""
    cut = u[:, :, None]
    a, b = tl.minimum(left, cut), tl.minimum(right, cut)
    c, d = tl.maximum(left, cut), tl.maximum(right, cut)
    low, high = tl.full(a.shape, 1.0, tl.float64), tl.full(a.shape, 1.0, tl.float64)
    a_power, c_power = a, c
    edge = tl.full(u.shape, 1.0, tl.float64)
    for _ in tl.static_range(1, K):
        low, high = low * b + a_power, high * d + c_power
        a_power, c_power = a_power * a, c_power * c
        edge = edge * u
    gain = tl.maximum(gain, _TINY)
    edge = K * edge / gain
    lower, upper = tl.sum(density * (b - a), 2), tl.sum(density * (d - c), 2)
    low, high = tl.sum(density * ((b - a) * low), 2), tl.sum(density * ((d - c) * high), 2)
    lower_mean = tl.where(lower > 0, low / tl.maximum(gain * lower, _TINY), edge)
    upper_mean = tl.where(upper > 0, high / tl.maximum(gain * upper, _TINY), edge)
    return lower, upper, lower_mean, upper_mean


@triton.jit
def _bracket(wanted, left, right, density, gain, K: tl.constexpr, UPPER: tl.constexpr):
    """Where a slice's mean reaches what is wanted: see `otlp.batched.numerics.bracket`."""
    a = tl.zeros(wanted.shape, tl.float64)
    b = a + 1.0
    section = tl.arange(0, _SECTIONS)[None]
    for _ in range(_SECTION_STEPS):
        points = a + (b - a) * (section / _SECTIONS).to(tl.float64)
        _, _, lower_mean, upper_mean = _means(points, left, right, density, gain, K)
        mean = upper_mean if UPPER else lower_mean
        short = (mean < wanted) & (section > 0)
        count = tl.sum(short.to(tl.int32), 1)[:, None].to(tl.float64)
        wide = b - a
        b = a + wide * ((count + 1.0) / _SECTIONS)
        a = a + wide * (count / _SECTIONS)
    return a, b


@triton.jit
def _excess(
    u, left, right, density, gain, weight, target, draft, row, live, size,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of min(max(w p, m0 q), m1 q) over 1, which rises in u; (R, 1)."""
    _, _, m0, m1 = _means(u, left, right, density, gain, K)
    total = tl.zeros(u.shape, tl.float64)
    for start in range(0, size, BLOCK):
        p, q = _tokens(target, draft, row, row, live, start, size, BLOCK)
        clipped = tl.minimum(tl.maximum(weight * p, m0 * q), m1 * q)
        total += tl.sum(clipped, 1)[:, None]
    return total - 1.0


@triton.jit
def _tokens(target, draft, row, draft_row, live, start, size, BLOCK: tl.constexpr):
    """Load p and q of some tokens of rows (R, 1), zero beyond the vocabulary."""
    column = start + tl.arange(0, BLOCK)[None]
    here = live & (column < size)
    p = tl.load(target + row * size + column, mask=here, other=0.0)
    return p, tl.load(draft + draft_row * size + column, mask=here, other=0.0)


@triton.jit
def _share(p, q, weight, lower, upper, m0, m1):
    """Lambda before it is balanced: see `otlp.batched.two_slice._share`."""
    spread = m1 - m0
    share = (m1 - weight * p / tl.where(q > 0, q, 1.0)) / tl.maximum(spread, _SPREAD)
    share = tl.minimum(tl.maximum(share, 0.0), 1.0)
    alike = tl.minimum(spread, tl.minimum(lower, upper)) < _SPREAD
    return tl.where((q > 0) & (alike == 0), share, lower)


@triton.jit
def _wanted(weight, target, draft, row, live, size, R: tl.constexpr, BLOCK: tl.constexpr):
    """The least and the most that a drafted token wants of its mass; (R, 1)."""
    least = tl.full((R, 1), _INFINITY, tl.float64)
    most = tl.zeros((R, 1), tl.float64)
    for start in range(0, size, BLOCK):
        p, q = _tokens(target, draft, row, row, live, start, size, BLOCK)
        drafted = q > 0
        wanted = weight * p / tl.where(drafted, q, 1.0)
        least = tl.minimum(least, tl.min(tl.where(drafted, wanted, _INFINITY), 1)[:, None])
        # mass of p where there is no child is never matched: then nothing above 0 is enough
        never = tl.where(p > 0, _INFINITY, 0.0)
        most = tl.maximum(most, tl.max(tl.where(drafted, wanted, never), 1)[:, None])
    return least, most


@triton.jit
def _held(
    weight, lower, upper, m0, m1, target, draft, row, live, size,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How much of the draft has its lower part, and how much its upper one; (R, 1)."""
    held, missing = tl.zeros((R, 1), tl.float64), tl.zeros((R, 1), tl.float64)
    for start in range(0, size, BLOCK):
        p, q = _tokens(target, draft, row, row, live, start, size, BLOCK)
        share = _share(p, q, weight, lower, upper, m0, m1)
        held += tl.sum(q * share, 1)[:, None]
        missing += tl.sum(q * (1.0 - share), 1)[:, None]
    return held, missing


@triton.jit
def _two_slice(
    edges, densities, gains, weights, target, draft, found, nodes, cells, size,
    K: tl.constexpr, R: tl.constexpr, D: tl.constexpr, HALVINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * R + tl.arange(0, R)[:, None]).to(tl.int64)
    live = row < nodes
    cell = tl.arange(0, D)[None]
    inside = live & (cell < cells)
    # cells that there are not are empty, at the top
    left = tl.load(edges + row * (cells + 1) + cell, mask=inside, other=1.0)[:, None, :]
    right = tl.load(edges + row * (cells + 1) + cell + 1, mask=inside, other=1.0)[:, None, :]
    density = tl.load(densities + row * cells + cell, mask=inside, other=0.0)[:, None, :]
    gain = tl.load(gains + row, mask=live, other=1.0)
    weight = tl.load(weights + row, mask=live, other=1.0)

    least, most = _wanted(weight, target, draft, row, live, size, R, BLOCK)
    last_low, _ = _bracket(least, left, right, density, gain, K, UPPER=False)
    _, first_high = _bracket(most, left, right, density, gain, K, UPPER=True)
    whole = weight >= 1.0

    # between two knees: see otlp.batched.numerics.between_knees
    a, b = last_low, tl.where(whole, first_high, 1.0)
    knees = tl.maximum(tl.minimum(tl.sum(left, 1), b), a)
    first = tl.zeros((R, 1), tl.int32)
    end = first + D
    for _ in range(HALVINGS):
        middle = (first + end) // 2
        u = tl.sum(tl.where(cell == middle, knees, 0.0), 1)[:, None]
        value = _excess(
            u, left, right, density, gain, weight, target, draft, row, live, size, K, BLOCK
        )  # fmt: skip
        first, end = tl.where(value < 0, middle, first), tl.where(value < 0, end, middle)
    a = tl.sum(tl.where(cell == first, knees, 0.0), 1)[:, None]
    b = tl.where(end < D, tl.sum(tl.where(cell == end, knees, 0.0), 1)[:, None], b)
    # regula falsi with bisections: see otlp.batched.numerics.rising_root
    low = _excess(
        a, left, right, density, gain, weight, target, draft, row, live, size, K, BLOCK
    )  # fmt: skip
    high = _excess(
        b, left, right, density, gain, weight, target, draft, row, live, size, K, BLOCK
    )  # fmt: skip
    previous, width = tl.zeros((R, 1), tl.float64), b - a
    for step in range(1, _ROOT_STEPS - 1):
        chord = (a * high - b * low) / tl.maximum(high - low, _TINY)
        bisect = ((chord >= a) & (chord <= b)) == 0
        third = step % 3 == 0
        bisect = bisect | (third & (b - a > 0.5 * width))
        width = tl.where(third, b - a, width)
        u = tl.where(bisect, 0.5 * (a + b), chord)
        value = _excess(
            u, left, right, density, gain, weight, target, draft, row, live, size, K, BLOCK
        )  # fmt: skip
        short = value < 0
        # an end that stays twice counts less, or the chord would creep
        end = tl.where(short, low, high)
        fade = 1.0 - value / tl.where(end == 0, 1.0, end)
        fade = tl.where((fade > 0) & (end != 0), fade, 0.5)
        sign = tl.where(value > 0, 1.0, tl.where(short, -1.0, 0.0))
        fade = tl.where(sign == previous, fade, 1.0)
        previous = sign
        low, high = tl.where(short, value, fade * low), tl.where(short, fade * high, value)
        a, b = tl.where(short, u, a), tl.where(short, b, u)
        settled = tl.abs(value) <= _SETTLED
        low, high = tl.where(settled, 0.0, low), tl.where(settled, 0.0, high)
        a, b = tl.where(settled, u, a), tl.where(settled, u, b)
    chord = (a * high - b * low) / tl.maximum(high - low, _TINY)
    root = tl.where((chord >= a) & (chord <= b), chord, 0.5 * (a + b))
    free = whole & (first_high <= last_low)
    u = tl.where(free, 0.5 * (first_high + last_low), root)

    lower, upper, m0, m1 = _means(u, left, right, density, gain, K)
    held, missing = _held(weight, lower, upper, m0, m1, target, draft, row, live, size, R, BLOCK)
    tl.store(found + row, u, mask=live)
    tl.store(found + nodes + row, lower, mask=live)
    tl.store(found + 2 * nodes + row, upper, mask=live)
    tl.store(found + 3 * nodes + row, m0, mask=live)
    tl.store(found + 4 * nodes + row, m1, mask=live)
    scale = tl.minimum(lower / tl.maximum(held, _TINY), 1.0)
    tl.store(found + 5 * nodes + row, scale, mask=live)
    scale = tl.minimum(upper / tl.maximum(missing, _TINY), 1.0)
    tl.store(found + 6 * nodes + row, scale, mask=live)


@triton.jit
def _left(p, q, parts, at, live, weight):
    """Residual (w p - q r)^+ after a prefix whose split is number `at`, (R, 1)."""
    lower = tl.load(parts + at * 6, mask=live, other=1.0)
    upper = tl.load(parts + at * 6 + 1, mask=live, other=0.0)
    m0 = tl.load(parts + at * 6 + 2, mask=live, other=1.0)
    m1 = tl.load(parts + at * 6 + 3, mask=live, other=1.0)
    lower_scale = tl.load(parts + at * 6 + 4, mask=live, other=1.0)
    upper_scale = tl.load(parts + at * 6 + 5, mask=live, other=1.0)
    share = _share(p, q, weight, lower, upper, m0, m1)
    below = lower_scale * share
    share = tl.where(lower_scale < 1.0, below, 1.0 - upper_scale * (1.0 - share))
    return tl.maximum(weight * p - q * (share * m0 + (1.0 - share) * m1), 0.0)


@triton.jit
def _block(
    target, draft, parts, weights, numbers, accepted, last, batch, length, size,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * R + tl.arange(0, R)[:, None]).to(tl.int64)
    live = row < batch
    width = length + 1
    longest = tl.zeros((R, 1), tl.int64)
    mass = tl.zeros((R, 1), tl.float64)
    for level in range(length):
        weight = tl.load(weights + row * width + level, mask=live, other=1.0)
        here = tl.zeros((R, 1), tl.float64)
        at = row * length + level
        for start in range(0, size, BLOCK):
            p, q = _tokens(target, draft, row * width + level, at, live, start, size, BLOCK)
            here += tl.sum(_left(p, q, parts, at, live, weight), 1)[:, None]
        # 1 - w first: next to 1 a tiny mass would be lost, and the quotient exceed 1
        stop = here / tl.maximum(here + (1.0 - weight), _TINY)
        number = tl.load(numbers + row * (length + 2) + level, mask=live, other=0.0)
        passed = (number < stop) | (level == 0)
        longest = tl.where(passed, level, longest)
        mass = tl.where(passed, here, mass)
    weight = tl.load(weights + row * width + length, mask=live, other=1.0)
    number = tl.load(numbers + row * (length + 2) + length, mask=live, other=0.0)
    longest = tl.where(number < weight, length, longest)

    # a prefix without residual is the longest accepted by rounding only
    bare = (longest == length) | (mass <= 0.0)
    inside = tl.minimum(longest, length - 1)
    weight = tl.load(weights + row * width + inside, mask=live, other=1.0)
    at, of_target = row * length + inside, row * width + longest
    total = tl.zeros((R, 1), tl.float64)
    for start in range(0, size, BLOCK):
        p, q = _tokens(target, draft, of_target, at, live, start, size, BLOCK)
        total += tl.sum(tl.where(bare, p, _left(p, q, parts, at, live, weight)), 1)[:, None]
    level = tl.load(numbers + row * (length + 2) + length + 1, mask=live, other=0.0) * total
    before = tl.zeros((R, 1), tl.float64)
    # the first token whose prefix sum exceeds the level; by rounding the last one with weight
    first, final = tl.full((R, 1), size, tl.int64), tl.zeros((R, 1), tl.int64)
    for start in range(0, size, BLOCK):
        p, q = _tokens(target, draft, of_target, at, live, start, size, BLOCK)
        left = tl.where(bare, p, _left(p, q, parts, at, live, weight))
        column = (start + tl.arange(0, BLOCK)[None]).to(tl.int64)
        beyond = (left > 0) & (before + tl.cumsum(left, 1) > level)
        first = tl.minimum(first, tl.min(tl.where(beyond, column, size), 1)[:, None])
        final = tl.maximum(final, tl.max(tl.where(left > 0, column, 0), 1)[:, None])
        before += tl.sum(left, 1)[:, None]
    tl.store(accepted + row, longest, mask=live)
    tl.store(last + row, tl.where(first < size, first, final), mask=live)
