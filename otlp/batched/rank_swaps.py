"""Tokens that swap parts of their places in an ordering, until each has what it should.

Every token has a place in one ordering, as wide as it arrives often, if it went on arriving, and
the best rank of its arrivals.  What a place is worth falls by exp(-x) over the width x, so two
tokens that swap equal widths leave those between them what they had, however likely the two are.
Tokens that need more give the bottom of their places for the top of those of later ones that need
less, first come, first served: partners are where two prefix sums of the needs agree.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.exponential_race import BatchedRanks
from otlp.batched.martingale import sort_rows
from otlp.batched.numerics import TINY

SURE = 40.0
"""Of more arrivals than so many, on average, at least one is certain to rounding."""

NEWTON_STEPS = 8
"""The time need not be exact: any will do, some sooner than others."""

PASSES = 2
"""How wide a swap is depends on what the two gave before, a little: from the last pass."""


def expected_arrivals(draft: Tensor, n: Tensor) -> Tensor:
    """How often each token arrives, on average, (B, V), while about n do; `SURE` at most.

    Parameters
    ----------
    draft : Tensor, shape (B, V), float64
        q.
    n : Tensor, shape (B, 1), float64
    """
    drawn = (draft > 0).sum(1, keepdim=True)
    count = torch.minimum(n.clamp(min=1.0), drawn - 0.5)
    time = count
    for _ in range(NEWTON_STEPS):
        rung = -torch.expm1(-draft * time)
        slope = (draft * (1.0 - rung)).sum(1, keepdim=True).clamp(min=TINY)
        time = time + (count - rung.sum(1, keepdim=True)) / slope
    return (draft * time).clamp(max=SURE)


def swap_ranks(mass: Tensor, alone: Tensor, aim: Tensor) -> BatchedRanks:
    """Swap until each token would have `aim`, if what is swapped changed nobody else's chances.

    Parameters
    ----------
    mass : Tensor, shape (B, V), float64
        How often each token arrives, on average; they are ordered, the lowest rank first.
    alone, aim : Tensor, shape (B, V), float64
        What each token has without swaps, and should have.

    Returns
    -------
    BatchedRanks
        Of S = 3 V; one for each place, and two a swap, of which there are V at most.
    """
    need, size = aim - alone, mass.shape[1]
    gives = need > 0.0
    up, down = need.clamp(min=0.0).cumsum(1), (-need).clamp(min=0.0).cumsum(1)
    stop, _ = sort_rows(torch.where(gives, up, down))
    start = pad(stop[:, :-1], (1, 0))
    gain = stop - start
    found = (torch.searchsorted(part, start, right=True) for part in (up, down))
    # prefix sums worked out in parallel may fall by rounding
    low, high = (part.cummax(1).values for part in found)
    useful = (gain > 0.0) & (low < high) & (high < size)
    low, high = low.clamp(max=size - 1), high.clamp(max=size - 1)
    firsts = [torch.searchsorted(side, side) for side in (low, high)]
    starts, stops = _rings(gain * useful, useful, [low, high], firsts, mass, alone)

    places = torch.ones_like(low)
    for side in (low, high):
        places.scatter_add_(1, side, useful.long())
    end = places.cumsum(1)
    begin = end - places
    given = torch.zeros_like(mass)
    for side, ring in zip((low, high), stops, strict=True):
        given.scatter_reduce_(1, side, ring, "amax")
    # from its lowest arrival up, a token has what it kept of the top of its place, then what it got
    left = (mass - given).clamp(min=0.0)
    token = torch.cat([torch.arange(size, device=low.device).expand_as(low), low, high], 1)
    above = left.gather(1, low)
    start = torch.cat([given.masked_fill(gives, 0.0), above + starts[0], starts[1]], 1)
    stop = torch.cat([torch.where(gives, left, mass), above + stops[0], stops[1]], 1)
    nth = [_span(useful.long(), first)[0] for first in firsts]
    rank = torch.cat(
        [
            torch.where(gives, end - 1, begin),
            (end.gather(1, high) - 1 - nth[1]).masked_fill(~useful, 3 * size),
            (begin.gather(1, low) + nth[0]).masked_fill(~useful, 3 * size),
        ],
        1,
    )
    every = torch.expm1(mass).clamp(min=TINY).gather(1, token)
    below = torch.expm1(start) / every
    parts = token, below, torch.expm1(stop) / every - below
    return BatchedRanks(
        *(part.new_zeros(len(part), 3 * size + 1).scatter_(1, rank, part)[:, :-1] for part in parts)
    )


def _rings(
    gain: Tensor,
    useful: Tensor,
    sides: list[Tensor],
    firsts: list[Tensor],
    mass: Tensor,
    alone: Tensor,
) -> tuple[list[Tensor], list[Tensor]]:
    """Solve gain = top (1 - exp(-w)) - bottom (exp(w) - 1) for the width w of each swap.

    Returns
    -------
    starts, stops : list of two Tensors, shape (B, V)
        From which to which of the arrivals that it gives in all each of the two gives in this swap.
    """
    worth = alone / -torch.expm1(-mass).clamp(max=-TINY)
    bottom, top = (worth * torch.exp(-mass)).gather(1, sides[0]), worth.gather(1, sides[1])
    room = [mass.gather(1, side) for side in sides]
    width = torch.zeros_like(gain)
    for _ in range(PASSES):
        low, high = (_span(width, first)[0] for first in firsts)
        rise, fall = bottom * torch.exp(low), top * torch.exp(-high)
        half = 0.5 * (fall - rise - gain)
        rest = half * half - rise * gain
        growth = gain / (half + rest.clamp(min=0.0).sqrt()).clamp(min=TINY)
        growth = growth.masked_fill((half <= 0.0) | (rest < 0.0), torch.inf)
        width = torch.minimum(room[0] - low, room[1] - high).minimum(torch.log1p(growth))
        width = width.clamp(min=0.0) * useful
    spans = [_span(width, first) for first in firsts]
    starts, stops = (
        [torch.minimum(part, most) for part, most in zip(parts, room, strict=True)]
        for parts in zip(*spans, strict=True)
    )
    return starts, stops


def _span(values: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of a token's values before each, and with it; a token's values begin at `first`."""
    upto = values.cumsum(1)
    earlier = pad(upto[:, :-1], (1, 0))
    base = earlier.gather(1, first)
    return earlier - base, upto - base
