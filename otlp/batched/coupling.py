"""Swapped cells by prefix sums and binary searches: the plan of the `martingale` solver.

Tokens (or bins of tokens) lie on [0, 1] in ascending order of their ratio r = y / q, each on a
cell as long as its mass; the tokens at the level c share the first cell, and those at C the
last.  A draft scores on its own cell, where W = n u^(n-1) has mean m, or on its partner's, such
that the mean of W is r.  Cells that need a larger mean, by mass (r - m) > 0, swap with later
cells that need a smaller one, first come, first served: so partners are where two prefix sums
of the needs agree, and only drafted tokens are scored.  No sequential pass, no roots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Coupling",
    "before",
    "couple",
    "draw_index",
    "levels",
    "mean_weight",
    "power",
    "scores",
    "swap",
]

TINY = 1e-300
"""Keeps 0 / 0 from being NaN."""


class Coupling(NamedTuple):
    """A coupling of M blocks of each row with a uniform score.

    Attributes
    ----------
    n : Tensor, shape (B, 1)
        Number of drafts, at least 1.
    floor, ceiling : Tensor, shape (B, 1)
        The levels c and C; the selection law is q clip(ratio, c, C).
    first, last : Tensor, shape (B, 1), int64
        Blocks before `first` share cell 0, blocks from `last` on share cell M - 1.
    ratio : Tensor, shape (B, M)
        r of each block, and of each cell, ascending.
    ends : Tensor, shape (B, M)
        Right ends of the cells; cells that no block has are empty.
    up, down : Tensor, shape (B, M)
        Prefix sums of the needs of the cells that need a larger mean of W, and of the others.
    """

    n: Tensor
    floor: Tensor
    ceiling: Tensor
    first: Tensor
    last: Tensor
    ratio: Tensor
    ends: Tensor
    up: Tensor
    down: Tensor

    def cell(self, block: Tensor) -> Tensor:
        """The cells of some blocks (B, ...), of the same shape."""
        most = self.ends.shape[1] - 1
        inner = block.masked_fill(block < self.first, 0)
        return inner.masked_fill(block >= self.last, most)


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """``base ** exponent`` in place, for base >= 0 and exponent > 0; faster than `torch.pow`."""
    return base.log_().mul_(exponent).exp_()


def before(prefix: Tensor, index: Tensor) -> Tensor:
    """Read an inclusive prefix sum (B, M) just before `index` (B, ...); 0 at index 0."""
    return prefix.gather(1, (index - 1).clamp(min=0)).masked_fill(index == 0, 0.0)


def draw_index(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one index a row by inversion of the weights' prefix sums.

    Parameters
    ----------
    weights : Tensor, shape (B, M)
        Nonnegative, in float64; the sum need not be 1.
    uniform : Tensor, shape (B,)

    Returns
    -------
    index : Tensor, shape (B,), int64
        The last index where a row has no weight at all.
    total : Tensor, shape (B,)
        The sum of the weights.
    """
    cumulative = weights.cumsum(1)
    total = cumulative[:, -1:]
    scaled = torch.minimum(
        uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
    )
    found = torch.searchsorted(cumulative, scaled, right=True)
    return found[:, 0].clamp(max=weights.shape[1] - 1), total[:, 0]


def levels(
    ratio: Tensor, ends: Tensor, held: Tensor, ends_power: Tensor, scratch: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the levels c and C of the best selection law q clip(ratio, c, C).

    Parameters
    ----------
    ratio : Tensor, shape (B, M)
        p / q of each block, ascending.
    ends, held : Tensor, shape (B, M)
        Prefix sums of q and of q ratio.
    ends_power : Tensor, shape (B, M)
        ends ** n.
    scratch : Tensor, shape (B, M)
        Overwritten.

    Returns
    -------
    floor, ceiling : Tensor, shape (B, 1)
        With delta = max (Q^n - P)^+: the excess of c q over p sums to delta, and so does the
        excess of p over C q, so that the selection law sums to one.
    first, last : Tensor, shape (B, 1), int64
        Blocks before `first`, at least one, are at the floor, and those from `last` on, perhaps
        none, at the ceiling; first <= last.

    Notes
    -----
    Each is a chord between two neighbouring ratios, found by binary search, and clamped between
    them, so that rounding cannot put the ratios out of order.
    """
    end = ratio.shape[1] - 1
    delta = scratch.copy_(ends_power).sub_(held).amax(1, keepdim=True).clamp_(min=0.0)

    excess = scratch.copy_(ends).mul_(ratio).sub_(held)
    first = torch.searchsorted(excess, delta, right=True).clamp(min=1)
    floor = (delta + before(held, first)) / before(ends, first).clamp(min=TINY)
    floor = torch.maximum(floor, before(ratio, first))
    above = ratio.gather(1, first.clamp(max=end))
    floor = torch.where(first <= end, torch.minimum(floor, above), floor)

    matched = scratch.copy_(ends).neg_().add_(1.0).mul_(ratio).add_(held)
    last = torch.searchsorted(matched, 1.0 - delta, right=True)
    ceiling = (1.0 - before(held, last) - delta) / (1.0 - before(ends, last)).clamp(min=TINY)
    ceiling = torch.maximum(ceiling, before(ratio, last))
    ceiling = torch.minimum(ceiling, ratio.gather(1, last.clamp(max=end)))
    return floor, torch.maximum(floor, ceiling), first, torch.maximum(first, last)


def couple(ratio: Tensor, mass: Tensor, total: Tensor, n: Tensor) -> Coupling:
    """Build the coupling of the best selection law.

    Parameters
    ----------
    ratio : Tensor, shape (B, M), any floating type
        p / q of each block, ascending; entries above n count as n.
    mass : Tensor, shape (B, M), any floating type
        q of each block, up to a factor.
    total : Tensor, shape (B, 1), float64
        What each row of `mass` sums to.
    n : Tensor, shape (B, 1), float64
        Number of drafts, at least 1.

    Returns
    -------
    Coupling
        About 40 passes over (B, M), nearly all in place, four of them prefix sums.

    Notes
    -----
    All is done in place in one block of memory: on a CPU, fresh memory costs more than the
    arithmetic, and the C library keeps as much as was freed at once.
    """
    work = ratio.new_empty((6, *ratio.shape), dtype=torch.float64)
    wide, ends, ends_power, held, up, down = work.unbind()
    wide.copy_(ratio)
    ends.copy_(mass).div_(total)
    held.copy_(ends).mul_(wide)
    ends.cumsum_(1)
    held.cumsum_(1)
    power(ends_power.copy_(ends), n)
    floor, ceiling, first, last = levels(wide, ends, held, ends_power, up)
    torch.minimum(torch.maximum(wide, floor, out=wide), ceiling, out=wide)

    # one cell for all blocks at the floor, and one for all at the ceiling; those between are empty
    for sums in (ends, ends_power):
        low, high = before(sums, first), before(sums, last).clamp(max=1.0)
        torch.minimum(torch.maximum(sums, low, out=sums), high, out=sums)
        sums[:, -1] = 1.0
    # each difference by itself: it is as small as what it is compared with
    lengths = work[4:].copy_(work[1:3])
    lengths[..., 1:].sub_(work[1:3, :, :-1])
    up.mul_(wide).sub_(down)
    down.copy_(up).neg_()
    work[4:].clamp_(min=0.0).cumsum_(2)
    return Coupling(n, floor, ceiling, first, last, wide, ends, up, down)


def mean_weight(coupling: Coupling, cell: Tensor, most: int) -> Tensor:
    """Mean of W = n u^(n-1) over cells.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, m), int64
    most : int
        N >= n.

    Returns
    -------
    Tensor, shape (B, m), float64
        (b^n - a^n) / (b - a) = sum of a^i b^(n-1-i) over i < n, without cancellation.
    """
    left, right = before(coupling.ends, cell), coupling.ends.gather(1, cell)
    mean, left_power = torch.ones_like(left), left
    for degree in range(1, most):
        mean = torch.where(degree < coupling.n, mean * right + left_power, mean)
        left_power = left_power * left
    return mean


def swap(coupling: Coupling, cell: Tensor, partner: Tensor, most: int) -> Tensor:
    """Chance that a draft scores on its partner's cell, which gives W the mean r.

    Parameters
    ----------
    coupling : Coupling
    cell, partner : Tensor, shape (B, m), int64
    most : int
        N >= n.

    Returns
    -------
    Tensor, shape (B, m), float64
        (r - m) / (m' - m), where m and m' are the means of W over the two cells.
    """
    here, there = mean_weight(coupling, torch.cat([cell, partner], 1), most).chunk(2, 1)
    gap = there - here
    chance = (coupling.ratio.gather(1, cell) - here) / torch.where(gap == 0, TINY, gap)
    return chance.clamp(0.0, 1.0)


def scores(coupling: Coupling, cell: Tensor, numbers: Tensor) -> Tensor:
    """Score drafts; the draft with the largest score is selected.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, N), int64
        Cell of each drafted token.
    numbers : Tensor, shape (B, 3 N)
        Independent uniform numbers: for the partners, for the moves, for the places.

    Returns
    -------
    Tensor, shape (B, N), float64
        In [0, 1]; uniform over random drafts.
    """
    c, most = coupling, cell.shape[1]
    which, move, place = numbers.chunk(3, 1)
    # rounding may leave one of the sums larger: neither is searched beyond its end
    top = torch.minimum(c.up[:, -1:], c.down[:, -1:])
    top = torch.nextafter(top, torch.zeros_like(top))
    found = []
    for own, other in ((c.up, c.down), (c.down, c.up)):
        start = before(own, cell)
        level = start + which * (own.gather(1, cell) - start)
        found.append(torch.searchsorted(other, torch.minimum(level, top), right=True))
    rises = c.up.gather(1, cell) > before(c.up, cell)
    partner = torch.where(rises, found[0], found[1]).clamp(max=c.ends.shape[1] - 1)
    cell = torch.where(move < swap(c, cell, partner, most), partner, cell)
    start = before(c.ends, cell)
    return start + (c.ends.gather(1, cell) - start) * place
