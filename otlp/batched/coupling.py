"""The plan of the `martingale` solver on bins, by prefix sums and binary searches.

The interval [0, 1] is cut into cells, one per bin, in ascending order of the ratio r = y / q.  The
length of a cell is the mass of its bin.  The bins at the level c share the first cell, and the bins
at the level C share the last cell.  The score of a draft is uniform on its own cell, where
W = n u^(n-1) has mean m, or on the cell of its partner, such that the mean of W is r.  Cells that
need a larger mean, mass (r - m) > 0, swap with later cells that need a smaller mean, first come,
first served.  Partners are therefore found where two prefix sums of the needs agree, and only
drafted tokens are scored.  No sequential pass and no root search is needed.  Only integers are
summed; all other arithmetic is elementwise.

A bin is *pure* if the ratios of its tokens are all at least m, or all at most m.  The tokens of a
pure bin move by their own ratios instead of the ratio of the bin, since their (r - m) add up to
that of the bin.  Each token is then selected with its target probability, whichever other tokens
are in the bin.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, before, integer_power, mean_of_powers, random_integer
from otlp.batched.ratio_bins import UNIT, Layout


class Coupling(NamedTuple):
    """Coupling of the K bins of each row, in ascending order of ratio, with a uniform score.

    Attributes
    ----------
    n : Tensor, shape (B, 1), int64
        Number of drafts, at least 1.
    first, last : Tensor, shape (B, 1), int64
        Bins before `first` are at the level c and share cell 0; bins from `last` on are at the
        level C and share cell K - 1.
    ratio : Tensor, shape (B, K), float64
        Ratio r of each bin and of each cell, ascending.
    scale : Tensor, shape (B, 1), float64
        Factor from the ratio of the stored p and q to the ratio of the normalised p and q.
    level : Tensor, shape (B, K), float64
        y / q of the stored p and q; infinite in pure bins, whose tokens have y = p.
    ends : Tensor, shape (B, K), float64
        Right ends of the cells; cells without a bin are empty.
    up, down : Tensor, shape (B, K), int64
        Prefix sums of the needs of cells that need a larger, and of cells that need a smaller mean
        of W.
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
        """Return the cells of tokens from their bins (B, ...), with the same shape."""
        max_n = self.ends.shape[1] - 1
        inner = bins.masked_fill(bins < self.first, 0)
        return inner.masked_fill(bins >= self.last, max_n)

    def ratios(self, bins: Tensor, target: Tensor, draft: Tensor) -> Tensor:
        """Return the ratios r of tokens (B, ...) from their bins and stored p and q, in float64."""
        own = target.double() / draft.double() * self.scale
        pure = self.level.gather(1, bins).isinf()
        return torch.where(pure, own, self.ratio.gather(1, self.cell(bins)))

    def needs(self, cell: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Return the intervals of cells (B, m) in the prefix sums of needs.

        Returns two triples (start, stop, partners): the interval of the cell among the needs of a
        larger (then a smaller) mean, and the prefix sums of the opposite needs.  One of the two
        intervals is empty.  A cell swaps with a partner as much as their intervals overlap.
        """
        return tuple(
            (before(own, cell), own.gather(1, cell), other)
            for own, other in ((self.up, self.down), (self.down, self.up))
        )


class Prefixes(NamedTuple):
    """Prefix sums over the bins of each row, in ascending order of ratio.

    Attributes
    ----------
    total : Tensor, shape (B, 1), float64
        Sum of q, in units.
    scale : Tensor, shape (B, 1), float64
        Sum of the stored q divided by the sum of the stored p.
    drafted : Tensor, shape (B, K), int64
        Prefix sums of q, in units.
    ratio : Tensor, shape (B, K), float64
        Ratio of the masses of each bin, at most N; ascending.
    ends, above : Tensor, shape (B, K), float64
        Normalised mass of q up to and including each bin, and after it.
    held : Tensor, shape (B, K), float64
        Prefix sums of q times ratio, which is min(p, N q).
    """

    total: Tensor
    scale: Tensor
    drafted: Tensor
    ratio: Tensor
    ends: Tensor
    above: Tensor
    held: Tensor


def prefixes(target: Tensor, draft: Tensor, max_n: int, layout: Layout) -> Prefixes:
    """Compute prefix sums of the masses of bins (B, K), in units; N = `max_n`."""
    low, high = layout.edges(target.device)
    drafted = draft.cumsum(1)
    total = drafted[:, -1:].double()
    scale = total / target.sum(1, keepdim=True)
    # Keep the ratio between the edges of its bin, also if rounding to units leaves little mass.
    ratio = torch.minimum(torch.maximum(target.double() / draft.clamp(min=1), low), high)
    ratio = (ratio * scale).clamp(max=float(max_n))
    above = (drafted[:, -1:] - drafted) / total
    held = (ratio * draft).long().cumsum(1) / total
    return Prefixes(total, scale, drafted, ratio, drafted / total, above, held)


def largest_gap(sums: Prefixes, n: Tensor, max_n: int) -> Tensor:
    """Return the largest Q(S)^n - P(S) over sets S of the lowest bins, at least 0; (B, 1)."""
    gaps = integer_power(sums.ends, n, max_n) - sums.held
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
        The levels c and C.  The excess of c q over p sums to delta, and the excess of p over C q
        sums to delta, so that the selection distribution sums to one.
    first, last : Tensor, shape (B, 1), int64
        Bins before `first` (at least one bin) are at the floor, and bins from `last` on (possibly
        none) are at the ceiling; first <= last.

    Notes
    -----
    Each level is interpolated between two neighbouring ratios and clamped to them, so that rounding
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


def couple(target: Tensor, draft: Tensor, n: Tensor, max_n: int, layout: Layout) -> Coupling:
    """Build the coupling of the best selection distribution.

    Parameters
    ----------
    target, draft : Tensor, shape (B, K), int64
        p and q of each bin, in units; see `otlp.batched.ratio_bins`.
    n : Tensor, shape (B, 1), int64
        Number of drafts, at least 1.
    max_n : int
        N >= n.
    layout : Layout

    Returns
    -------
    Coupling
        Computed in about 60 passes over (B, K).
    """
    sums = prefixes(target, draft, max_n, layout)
    floor, ceiling, first, last = levels(sums, largest_gap(sums, n, max_n))
    ratio = torch.minimum(torch.maximum(sums.ratio, floor), ceiling)

    # All bins at the floor share one cell, and so do all at the ceiling; their other cells are
    # empty.
    low, high = before(sums.drafted, first), before(sums.drafted, last)
    drafted = torch.minimum(torch.maximum(sums.drafted, low), high)
    drafted[:, -1:] = sums.drafted[:, -1:]
    ends = drafted / sums.total
    mass = differences(drafted) / sums.total
    # mass (r - m); the mass times the mean m of W on the cell [a, b] is b^n - a^n.
    need = mass * ratio - differences(integer_power(ends, n, max_n))
    need = (need * UNIT).long()
    up, down = need.clamp(min=0).cumsum(1), (-need).clamp(min=0).cumsum(1)
    is_pure = pure(sums, floor, ceiling, n, max_n, layout)
    level = (ratio / sums.scale).masked_fill(is_pure, torch.inf)
    return Coupling(n, first, last, ratio, sums.scale, level, ends, up, down)


def pure(
    sums: Prefixes, floor: Tensor, ceiling: Tensor, n: Tensor, max_n: int, layout: Layout
) -> Tensor:
    """Mask of the pure bins (B, K): between c and C, with all ratios above or all below W."""
    low, high = (edge * sums.scale for edge in layout.edges(floor.device))
    # W rises, so its largest value on a cell is at the right end and its smallest at the left end.
    most_w = n * integer_power(sums.ends, n - 1, max_n)
    least_w = torch.cat([torch.zeros_like(floor).masked_fill(n == 1, 1.0), most_w[:, :-1]], 1)
    apart = (low >= most_w) | (high <= least_w)
    # The first and the last bin contain the tokens with q = 0, which have no finite ratio.
    return (low > 0.0) & (low >= floor) & (high <= ceiling) & apart


def differences(prefix: Tensor) -> Tensor:
    """Return the terms of the prefix sums (B, K)."""
    return prefix.diff(dim=1, prepend=prefix.new_zeros(len(prefix), 1))


def swap(coupling: Coupling, cell: Tensor, partner: Tensor, ratio: Tensor, max_n: int) -> Tensor:
    """Return the probability of scoring on the cell of the partner, such that W has mean r.

    Parameters
    ----------
    coupling : Coupling
    cell, partner : Tensor, shape (B, m), int64
    ratio : Tensor, shape (B, m), float64
        Ratio r of each draft.
    max_n : int
        N >= n.

    Returns
    -------
    Tensor, shape (B, m), float64
        (r - m) / (m' - m), where m and m' are the means of W over the two cells.
    """
    both = torch.cat([cell, partner], 1)
    left, right = before(coupling.ends, both), coupling.ends.gather(1, both)
    here, there = mean_of_powers(left, right, max_n, coupling.n).chunk(2, 1)
    gap = there - here
    return ((ratio - here) / torch.where(gap == 0, TINY, gap)).clamp(0.0, 1.0)


def scores(coupling: Coupling, cell: Tensor, ratio: Tensor, numbers: Tensor) -> Tensor:
    """Draw the scores of drafts; the draft with the largest score is selected.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, N), int64
        Cell of each drafted token.
    ratio : Tensor, shape (B, N), float64
        Ratio r of each drafted token.
    numbers : Tensor, shape (B, 3 N)
        Independent uniform random numbers: N for the partners, N for the moves and N for the
        positions inside a cell.

    Returns
    -------
    Tensor, shape (B, N), float64
        Scores in [0, 1]; uniform over random drafts.
    """
    which, move, place = numbers.chunk(3, 1)
    # Rounding can make the two totals differ; clamp so that searchsorted stays in range.
    top = torch.minimum(coupling.up[:, -1:], coupling.down[:, -1:]) - 1
    ends = coupling.ends
    partner = cell
    for start, stop, partners in coupling.needs(cell):
        level = torch.minimum(start + random_integer(which, stop - start), top)
        found = torch.searchsorted(partners, level, right=True)
        partner = torch.where(stop > start, found, partner)
    partner = partner.clamp(max=ends.shape[1] - 1)
    moves = move < swap(coupling, cell, partner, ratio, cell.shape[1])
    cell = torch.where(moves, partner, cell)
    start = before(ends, cell)
    return start + (ends.gather(1, cell) - start) * place
