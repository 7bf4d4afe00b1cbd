"""Swapped cells by prefix sums and binary searches: the plan of the `martingale` solver on bins.

Bins lie on [0, 1] in ascending order of their ratio r = y / q, each on a cell as long as its
mass; the bins at the level c share the first cell, and those at C the last.  A draft scores
on its own cell, where W = n u^(n-1) has mean m, or on its
partner's, such that the mean of W is r.  Cells that need a larger mean, by mass (r - m) > 0, swap
with later cells that need a smaller one, first come, first served: so partners are where two
prefix sums of the needs agree, and only drafted tokens are scored.  No sequential pass, no roots.
All sums are of integers, and all other arithmetic is of single elements.

A bin is *pure* if the ratios of its tokens are all at least m, or all at most m.  Its tokens move
by their own ratios in place of the bin's, as (r - m) of all of them add up to that of the bin: so
they are selected as often as the target wants them, whatever else is in the bin.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, before, integer_power, mean_of_powers, share
from otlp.batched.ratio_bins import UNIT, Layout


class Coupling(NamedTuple):
    """A coupling of the K bins of each row, in the order of their ratios, with a uniform score.

    Attributes
    ----------
    n : Tensor, shape (B, 1), int64
        Number of drafts, at least 1.
    first, last : Tensor, shape (B, 1), int64
        Bins before `first` are at the level c and share cell 0; those from `last` on are at the
        level C and share cell K - 1.
    ratio : Tensor, shape (B, K), float64
        r of each bin, and of each cell, ascending.
    scale : Tensor, shape (B, 1), float64
        What ratios of the stored p and q are to be multiplied by.
    level : Tensor, shape (B, K), float64
        y / q as p and q are stored; infinite in pure bins, whose tokens have y = p.
    ends : Tensor, shape (B, K), float64
        Right ends of the cells; cells that no bin has are empty.
    up, down : Tensor, shape (B, K), int64
        Prefix sums of the needs of the cells that need a larger mean of W, and of the others.
    """

    n: Tensor
    first: Tensor
    last: Tensor
    ratio: Tensor
    scale: Tensor
    level: Tensor
    ends: Tensor
    up: Tensor
    down: Tensor

    def cell(self, bins: Tensor) -> Tensor:
        """The cells of tokens by their bins (B, ...), of the same shape."""
        most = self.ends.shape[1] - 1
        inner = bins.masked_fill(bins < self.first, 0)
        return inner.masked_fill(bins >= self.last, most)

    def ratios(self, bins: Tensor, target: Tensor, draft: Tensor) -> Tensor:
        """The ratios r of tokens (B, ...) by their bins and their stored p and q, in float64."""
        own = target.double() / draft.double() * self.scale
        pure = self.level.gather(1, bins).isinf()
        return torch.where(pure, own, self.ratio.gather(1, self.cell(bins)))

    def needs(self, cell: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Where cells (B, m) lie in the sum of needs like theirs, and the sum of their partners'.

        Two triples (start, stop, partners), for needs of a larger and of a smaller mean; in one
        of them a cell is empty.  It swaps with a partner as much as their intervals overlap.
        """
        return tuple(
            (before(own, cell), own.gather(1, cell), other)
            for own, other in ((self.up, self.down), (self.down, self.up))
        )


class Prefixes(NamedTuple):
    """What tokens of lowest ratio hold, bin after bin.

    Attributes
    ----------
    total : Tensor, shape (B, 1), float64
        Sum of q, in units.
    scale : Tensor, shape (B, 1), float64
        Sum of q, as stored, over the sum of p.
    drafted : Tensor, shape (B, K), int64
        Prefix sums of q, in units.
    ratio : Tensor, shape (B, K), float64
        Of each bin: the ratio of its masses, at most N; ascending.
    ends, above : Tensor, shape (B, K), float64
        q up to each bin, and beyond it, of 1.
    held : Tensor, shape (B, K), float64
        q times ratio up to each bin: p, but for what exceeds N q.
    """

    total: Tensor
    scale: Tensor
    drafted: Tensor
    ratio: Tensor
    ends: Tensor
    above: Tensor
    held: Tensor


def prefixes(target: Tensor, draft: Tensor, most: int, layout: Layout) -> Prefixes:
    """Add up the masses of bins (B, K), in units, from the lowest ratio on; N = most."""
    low, high = layout.edges(target.device)
    drafted = draft.cumsum(1)
    total = drafted[:, -1:].double()
    scale = total / target.sum(1, keepdim=True)
    # between the ratios of its tokens, also where rounding to units leaves next to nothing
    ratio = torch.minimum(torch.maximum(target.double() / draft.clamp(min=1), low), high)
    ratio = (ratio * scale).clamp(max=float(most))
    above = (drafted[:, -1:] - drafted) / total
    held = (ratio * draft).long().cumsum(1) / total
    return Prefixes(total, scale, drafted, ratio, drafted / total, above, held)


def largest_gap(sums: Prefixes, n: Tensor, most: int) -> Tensor:
    """Largest Q(S)^n - P(S) over sets S of lowest bins, at least 0; shape (B, 1)."""
    gaps = integer_power(sums.ends, n, most) - sums.held
    return gaps.amax(1, keepdim=True).clamp(min=0.0)


def levels(sums: Prefixes, delta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the levels c and C of the best selection distribution q clip(ratio, c, C).

    Parameters
    ----------
    sums : Prefixes
    delta : Tensor, shape (B, 1)
        max (Q^n - P)^+.

    Returns
    -------
    floor, ceiling : Tensor, shape (B, 1)
        The excess of c q over p sums to delta, and so does the excess of p over C q, so that the
        selection distribution sums to one.
    first, last : Tensor, shape (B, 1), int64
        Bins before `first`, at least one, are at the floor, and those from `last` on, perhaps
        none, at the ceiling; first <= last.

    Notes
    -----
    Each is a chord between two neighbouring ratios, and clamped between them, so that rounding
    cannot put the ratios out of order.
    """
    ratio, end = sums.ratio, sums.ratio.shape[1] - 1
    excess = sums.ends * ratio - sums.held
    first = (excess <= delta).sum(1, keepdim=True).clamp(min=1)
    floor = (delta + before(sums.held, first)) / before(sums.ends, first).clamp(min=TINY)
    floor = torch.maximum(floor, before(ratio, first))
    following = ratio.gather(1, first.clamp(max=end))
    floor = torch.where(first <= end, torch.minimum(floor, following), floor)

    matched = sums.above * ratio + sums.held
    last = (matched <= 1.0 - delta).sum(1, keepdim=True)
    above = sums.above.gather(1, (last - 1).clamp(min=0)).masked_fill(last == 0, 1.0)
    ceiling = (1.0 - before(sums.held, last) - delta) / above.clamp(min=TINY)
    ceiling = torch.maximum(ceiling, before(ratio, last))
    ceiling = torch.minimum(ceiling, ratio.gather(1, last.clamp(max=end)))
    return floor, torch.maximum(floor, ceiling), first, torch.maximum(first, last)


def couple(target: Tensor, draft: Tensor, n: Tensor, most: int, layout: Layout) -> Coupling:
    """Build the coupling of the best selection distribution.

    Parameters
    ----------
    target, draft : Tensor, shape (B, K), int64
        p and q of each bin, in units; see `otlp.batched.ratio_bins`.
    n : Tensor, shape (B, 1), int64
        Number of drafts, at least 1.
    most : int
        N >= n.
    layout : Layout

    Returns
    -------
    Coupling
        Some 60 passes over (B, K).
    """
    sums = prefixes(target, draft, most, layout)
    floor, ceiling, first, last = levels(sums, largest_gap(sums, n, most))
    ratio = torch.minimum(torch.maximum(sums.ratio, floor), ceiling)

    # one cell for all bins at the floor, and one for all at the ceiling; those between are empty
    low, high = before(sums.drafted, first), before(sums.drafted, last)
    drafted = torch.minimum(torch.maximum(sums.drafted, low), high)
    drafted[:, -1:] = sums.drafted[:, -1:]
    ends = drafted / sums.total
    mass = differences(drafted) / sums.total
    # mass times r, less mass times the mean of W on the cell, which is b^n - a^n
    need = mass * ratio - differences(integer_power(ends, n, most))
    need = (need * UNIT).long()
    up, down = need.clamp(min=0).cumsum(1), (-need).clamp(min=0).cumsum(1)
    level = (ratio / sums.scale).masked_fill(pure(sums, floor, ceiling, n, most, layout), torch.inf)
    return Coupling(n, first, last, ratio, sums.scale, level, ends, up, down)


def pure(
    sums: Prefixes, floor: Tensor, ceiling: Tensor, n: Tensor, most: int, layout: Layout
) -> Tensor:
    """Bins between c and C whose ratios are all above, or all below, W on their cells; (B, K)."""
    low, high = (edge * sums.scale for edge in layout.edges(floor.device))
    # of rising W, that at the right end of a cell, and at the left end
    most_w = n * integer_power(sums.ends, n - 1, most)
    least_w = torch.cat([torch.zeros_like(floor).masked_fill(n == 1, 1.0), most_w[:, :-1]], 1)
    apart = (low >= most_w) | (high <= least_w)
    # tokens of q = 0 lie in the first bin and in the last, and have no ratio of their own
    return (low > 0.0) & (low >= floor) & (high <= ceiling) & apart


def differences(prefix: Tensor) -> Tensor:
    """What prefix sums (B, K) are the sums of."""
    return prefix.diff(dim=1, prepend=prefix.new_zeros(len(prefix), 1))


def swap(coupling: Coupling, cell: Tensor, partner: Tensor, ratio: Tensor, most: int) -> Tensor:
    """Chance that a draft scores on its partner's cell, which gives W the mean r.

    Parameters
    ----------
    coupling : Coupling
    cell, partner : Tensor, shape (B, m), int64
    ratio : Tensor, shape (B, m), float64
        r of the drafts.
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
    return ((ratio - here) / torch.where(gap == 0, TINY, gap)).clamp(0.0, 1.0)


def scores(coupling: Coupling, cell: Tensor, ratio: Tensor, numbers: Tensor) -> Tensor:
    """Score drafts; the draft with the largest score is selected.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, N), int64
        Cell of each drafted token.
    ratio : Tensor, shape (B, N), float64
        r of each.
    numbers : Tensor, shape (B, 3 N)
        Independent uniform numbers: for the partners, for the moves, for the places.

    Returns
    -------
    Tensor, shape (B, N), float64
        In [0, 1]; uniform over random drafts.
    """
    which, move, place = numbers.chunk(3, 1)
    # rounding may leave one of the sums larger: neither is searched beyond its end
    top = torch.minimum(coupling.up[:, -1:], coupling.down[:, -1:]) - 1
    ends = coupling.ends
    partner = cell
    for start, stop, partners in coupling.needs(cell):
        level = torch.minimum(start + share(which, stop - start), top)
        found = torch.searchsorted(partners, level, right=True)
        partner = torch.where(stop > start, found, partner)
    partner = partner.clamp(max=ends.shape[1] - 1)
    moves = move < swap(coupling, cell, partner, ratio, cell.shape[1])
    cell = torch.where(moves, partner, cell)
    start = before(ends, cell)
    return start + (ends.gather(1, cell) - start) * place
