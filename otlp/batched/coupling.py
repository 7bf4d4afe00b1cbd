"""Swapped cells by prefix sums and binary searches: the plan of the `martingale` solver.

Tokens lie on [0, 1] in ascending order of their ratio r = y / q, each on a cell as long as its
mass; the tokens at the level c share the first cell, and those at C the last.  A draft scores
on its own cell, where W = n u^(n-1) has mean m, or on its
partner's, such that the mean of W is r.  Cells that need a larger mean, by mass (r - m) > 0, swap
with later cells that need a smaller one, first come, first served: so partners are where two
prefix sums of the needs agree, and only drafted tokens are scored.  No sequential pass, no roots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, before, mean_of_powers, power


class Coupling(NamedTuple):
    """A coupling of the V tokens of each row, in the order of their ratios, with a uniform score.

    Attributes
    ----------
    n : Tensor, shape (B, 1)
        Number of drafts, at least 1.
    floor, ceiling : Tensor, shape (B, 1)
        The levels c and C; the selection distribution is q clip(ratio, c, C).
    first, last : Tensor, shape (B, 1), int64
        Places before `first` share cell 0, places from `last` on share cell V - 1.
    ratio : Tensor, shape (B, V)
        r of each token, and of each cell, ascending.
    ends : Tensor, shape (B, V)
        Right ends of the cells; cells that no token has are empty.
    up, down : Tensor, shape (B, V)
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

    def cell(self, place: Tensor) -> Tensor:
        """The cells of tokens by their places (B, ...), of the same shape."""
        most = self.ends.shape[1] - 1
        inner = place.masked_fill(place < self.first, 0)
        return inner.masked_fill(place >= self.last, most)

    def needs(self, cell: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Where cells (B, m) lie in the sum of needs like theirs, and the sum of their partners'.

        Two triples (start, stop, partners), for needs of a larger and of a smaller mean; in one
        of them a cell is empty.  It swaps with a partner as much as their intervals overlap.
        """
        return tuple(
            (before(own, cell), own.gather(1, cell), other)
            for own, other in ((self.up, self.down), (self.down, self.up))
        )


def levels(
    ratio: Tensor, ends: Tensor, held: Tensor, ends_power: Tensor, scratch: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the levels c and C of the best selection distribution q clip(ratio, c, C).

    Parameters
    ----------
    ratio : Tensor, shape (B, V)
        p / q of each token, ascending.
    ends, held : Tensor, shape (B, V)
        Prefix sums of q and of q ratio.
    ends_power : Tensor, shape (B, V)
        ends ** n.
    scratch : Tensor, shape (B, V)
        Overwritten.

    Returns
    -------
    floor, ceiling : Tensor, shape (B, 1)
        With delta = max (Q^n - P)^+: the excess of c q over p sums to delta, and so does the
        excess of p over C q, so that the selection distribution sums to one.
    first, last : Tensor, shape (B, 1), int64
        Places before `first`, at least one, are at the floor, and those from `last` on, perhaps
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


def couple(ratio: Tensor, mass: Tensor, total: Tensor, n: Tensor) -> tuple[Coupling, Tensor]:
    """Build the coupling of the best selection distribution.

    Parameters
    ----------
    ratio : Tensor, shape (B, V), any floating type
        p / q of each token, ascending; entries above n count as n.
    mass : Tensor, shape (B, V), any floating type
        q of each token, up to a factor.
    total : Tensor, shape (B, 1), float64
        What each row of `mass` sums to.
    n : Tensor, shape (B, 1), float64
        Number of drafts, at least 1.

    Returns
    -------
    coupling : Coupling
        About 40 passes over (B, V), nearly all in place, four of them prefix sums.
    scratch : Tensor, shape (2, B, V), float64
        Memory that the coupling has no more use for.

    Notes
    -----
    All is done in place in one block of memory: on a CPU, fresh memory costs more than the
    arithmetic, and the C library keeps as much as was freed at once.
    """
    memory = ratio.new_empty((6, *ratio.shape), dtype=torch.float64)
    wide, sums, scratch, needs = memory[0], memory[1:3], memory[2:4], memory[4:]
    ends, ends_power, held = memory[1:4].unbind()
    up, down = needs.unbind()
    wide.copy_(ratio)
    ends.copy_(mass).div_(total)
    held.copy_(ends).mul_(wide)
    ends.cumsum_(1)
    held.cumsum_(1)
    power(ends_power.copy_(ends), n)
    floor, ceiling, first, last = levels(wide, ends, held, ends_power, up)
    torch.minimum(torch.maximum(wide, floor, out=wide), ceiling, out=wide)

    # one cell for all tokens at the floor, and one for all at the ceiling; those between are empty
    for prefix in sums:
        low, high = before(prefix, first), before(prefix, last).clamp(max=1.0)
        torch.minimum(torch.maximum(prefix, low, out=prefix), high, out=prefix)
        prefix[:, -1] = 1.0
    # each difference by itself: it is as small as what it is compared with
    needs.copy_(sums)
    needs[..., 1:].sub_(sums[..., :-1])
    # mass times r, less mass times the mean of W on the cell, which is b^n - a^n
    up.mul_(wide).sub_(down)
    down.copy_(up).neg_()
    needs.clamp_(min=0.0).cumsum_(2)
    return Coupling(n, floor, ceiling, first, last, wide, ends, up, down), scratch


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
    both = torch.cat([cell, partner], 1)
    left, right = before(coupling.ends, both), coupling.ends.gather(1, both)
    here, there = mean_of_powers(left, right, most, coupling.n).chunk(2, 1)
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
    which, move, place = numbers.chunk(3, 1)
    # rounding may leave one of the sums larger: neither is searched beyond its end
    top = torch.minimum(coupling.up[:, -1:], coupling.down[:, -1:])
    top = torch.nextafter(top, torch.zeros_like(top))
    ends = coupling.ends
    partner = cell
    for start, stop, partners in coupling.needs(cell):
        level = torch.minimum(start + which * (stop - start), top)
        found = torch.searchsorted(partners, level, right=True)
        partner = torch.where(stop > start, found, partner)
    partner = partner.clamp(max=ends.shape[1] - 1)
    cell = torch.where(move < swap(coupling, cell, partner, cell.shape[1]), partner, cell)
    start = before(ends, cell)
    return start + (ends.gather(1, cell) - start) * place
