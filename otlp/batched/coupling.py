"""The inverse-transform martingale coupling, by prefix sums and binary searches.

Tokens (or bins of tokens) lie on [0, 1] in ascending order of their ratio r = y / q, block j on
an interval of length q_j.  A draft of ratio r gets a place v in the interval of its ratio, where
W = n v^(n-1) is too small or too large; it stays, or moves to the partner place u on the other
side, such that the mean of W is r.  Places are matched with partners by two prefix sums: Psi+
collects (r - W)^+ from the left and Psi- collects (W - r)^+, and partners have equal sums
(Jourdain and Margheriti 2020, "A new family of one dimensional martingale couplings", section
2).  No sequential pass over the tokens is needed, and only drafted tokens are scored.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "Coupling",
    "before",
    "couple",
    "draw_index",
    "levels",
    "partner",
    "place_at",
    "power",
    "scores",
]

TINY = 1e-300
"""Keeps 0 / 0 from being NaN."""


class Coupling(NamedTuple):
    """A coupling of the blocks of each row with a uniform score.

    Attributes
    ----------
    n : Tensor, shape (B, 1)
        Number of drafts, at least 1.
    floor, ceiling : Tensor, shape (B, 1)
        The levels c and C; the selection law is q clip(ratio, c, C).
    ends : Tensor, shape (B, M)
        Right ends Q_j of the blocks' intervals.
    ratio : Tensor, shape (B, M)
        r_j, ascending.
    split : Tensor, shape (B, M)
        v_j: in block j, W is below r_j left of it and above r_j right of it.
    rise, fall : Tensor, shape (B, M)
        Psi+ and Psi- at the right ends.
    """

    n: Tensor
    floor: Tensor
    ceiling: Tensor
    ends: Tensor
    ratio: Tensor
    split: Tensor
    rise: Tensor
    fall: Tensor


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


def levels(ratio: Tensor, ends: Tensor, held: Tensor, ends_power: Tensor) -> tuple[Tensor, Tensor]:
    """Find the levels c and C of the best selection law q clip(ratio, c, C).

    Parameters
    ----------
    ratio : Tensor, shape (B, M)
        p / q of each block, ascending.
    ends, held : Tensor, shape (B, M)
        Prefix sums of q and of q ratio.
    ends_power : Tensor, shape (B, M)
        ends ** n.

    Returns
    -------
    floor, ceiling : Tensor, shape (B, 1)
        With delta = max (Q^n - P)^+: the excess of c q over p sums to delta, and so does the
        excess of p over C q, so that the selection law sums to one.

    Notes
    -----
    Each is a chord between two neighbouring ratios, found by counting the blocks on one side,
    and clamped between them, so that rounding cannot put the ratios out of order.
    """
    last = ratio.shape[1] - 1
    scratch = ends_power - held
    delta = scratch.amax(1, keepdim=True).clamp_(min=0.0)

    lower = scratch.copy_(ends).mul_(ratio).sub_(held) <= delta
    inside = (lower.sum(1, keepdim=True) - 1).clamp_(min=0)
    floor = (delta + held.gather(1, inside)) / ends.gather(1, inside).clamp(min=TINY)
    floor = torch.maximum(floor, ratio.gather(1, inside))
    above = ratio.gather(1, (inside + 1).clamp(max=last))
    floor = torch.where(inside < last, torch.minimum(floor, above), floor)

    higher = scratch.copy_(ends).neg_().add_(1.0).mul_(ratio).add_(held) <= 1.0 - delta
    outside = higher.sum(1, keepdim=True)
    ceiling = (1.0 - before(held, outside) - delta) / (1.0 - before(ends, outside)).clamp(min=TINY)
    ceiling = torch.maximum(ceiling, before(ratio, outside))
    ceiling = torch.minimum(ceiling, ratio.gather(1, outside.clamp(max=last)))
    return floor, torch.maximum(floor, ceiling)


def couple(ratio: Tensor, mass: Tensor, n: Tensor) -> Coupling:
    """Build the coupling of the best selection law.

    Parameters
    ----------
    ratio : Tensor, shape (B, M), any floating type
        p / q of each block, ascending; entries above n count as n.
    mass : Tensor, shape (B, M), float64
        q of each block; rows sum to one.  Overwritten: this and other reuse of buffers halves
        the time on a CPU, where fresh memory costs more than arithmetic.
    n : Tensor, shape (B, 1), float64
        Number of drafts, at least 1.

    Returns
    -------
    Coupling
        About 30 passes over (B, M), four of them prefix sums.
    """
    wide = ratio.to(torch.float64, copy=True)
    ends = mass.cumsum(1)
    held = mass.mul_(wide).cumsum(1)
    ends_power = power(mass.copy_(ends), n)
    floor, ceiling = levels(wide, ends, held, ends_power)
    clipped = wide.clamp_(floor, ceiling)

    left, left_power = pad(ends[:, :-1], (1, 0)), pad(ends_power[:, :-1], (1, 0))
    share = held.copy_(clipped).div_(n)
    root = power(share.clone(), 1.0 / (n - 1.0).clamp(min=TINY))
    split = torch.clamp(root, left, ends)
    split_power = root.mul_(share).clamp_(left_power, ends_power)
    # each difference of powers by itself: it is as small as what it is compared with
    up = left.neg_().add_(split).mul_(clipped).sub_(left_power.neg_().add_(split_power))
    over = held.copy_(ends).sub_(split).mul_(clipped)
    down = ends_power.sub_(split_power).sub_(over)
    rise, fall = up.clamp_(min=0.0).cumsum_(1), down.clamp_(min=0.0).cumsum_(1)
    return Coupling(n, floor, ceiling, ends, clipped, split, rise, fall)


def scores(coupling: Coupling, ratio: Tensor, place: Tensor, move: Tensor) -> Tensor:
    """Score drafts; the draft with the largest score is selected.

    Parameters
    ----------
    coupling : Coupling
    ratio : Tensor, shape (B, N)
        Clipped ratio of each drafted token: one of ``coupling.ratio``.
    place, move : Tensor, shape (B, N)
        Independent uniform numbers.

    Returns
    -------
    Tensor, shape (B, N), float64
        In [0, 1]; uniform over random drafts.
    """
    first = torch.searchsorted(coupling.ratio, ratio)
    beyond = torch.searchsorted(coupling.ratio, ratio, right=True)
    start, stop = before(coupling.ends, first), before(coupling.ends, beyond)
    v = start + (stop - start) * place
    block = torch.searchsorted(coupling.ends, v, right=True)
    block = torch.minimum(torch.maximum(block, first), beyond - 1)
    u, chance, _ = partner(coupling, block, v)
    return torch.where(move < chance, u, v)


def partner(coupling: Coupling, block: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the partner of places on [0, 1], and how likely a score moves there.

    Parameters
    ----------
    coupling : Coupling
    block : Tensor, shape (B, ...), int64
        The block whose interval holds each place.
    v : Tensor, shape (B, ...)

    Returns
    -------
    u : Tensor, shape (B, ...)
        The partner: W - r has the other sign there.
    chance : Tensor, shape (B, ...)
        |r - W(v)| / |W(u) - W(v)|, so that the mean of W is r.
    other : Tensor, shape (B, ...), int64
        The block of u.
    """
    c, n = coupling, coupling.n
    r, split = c.ratio.gather(1, block), c.split.gather(1, block)
    left = before(c.ends, block)
    below = v < split
    v_power = torch.pow(v, n)
    rise = before(c.rise, block) + r * (v - left) - (v_power - torch.pow(left, n))
    fall = before(c.fall, block) + (v_power - torch.pow(split, n)) - r * (v - split)
    u, other = place_at(c, torch.where(below, rise, fall), below)
    here, there = n * torch.pow(v, n - 1.0), n * torch.pow(u, n - 1.0)
    chance = (r - here).abs() / (there - here).abs().clamp(min=TINY)
    return u, chance.clamp(max=1.0), other


def place_at(coupling: Coupling, level: Tensor, falling: Tensor) -> tuple[Tensor, Tensor]:
    """Invert Psi- where `falling`, and Psi+ elsewhere.

    Parameters
    ----------
    coupling : Coupling
    level : Tensor, shape (B, m)
        Values of Psi.
    falling : Tensor, shape (B, m), bool

    Returns
    -------
    place : Tensor, shape (B, m)
        The leftmost place where the function has that value.
    block : Tensor, shape (B, m), int64
        Its block.
    """
    c = coupling
    block = torch.where(
        falling, torch.searchsorted(c.fall, level), torch.searchsorted(c.rise, level)
    ).clamp(max=c.ratio.shape[1] - 1)
    s = c.split.gather(1, block)
    side = torch.where(falling, 1.0, -1.0).to(level.dtype)
    room = torch.where(falling, c.ends.gather(1, block) - s, s - before(c.ends, block))
    wanted = torch.where(falling, level - before(c.fall, block), c.rise.gather(1, block) - level)
    ratio = c.ratio.gather(1, block)
    distance = _distance(s, side, ratio, c.n, wanted.clamp(min=0.0), room)
    return s + side * distance, block


NOISE = 1e-16

STEPS = 5
"""Newton steps: four suffice for n <= 8, see `_distance`."""


def _distance(
    s: Tensor, side: Tensor, r: Tensor, n: Tensor, wanted: Tensor, room: Tensor
) -> Tensor:
    """Solve (s + side d)^n - s^n - side r d = wanted for d in [0, room], a convex equation."""
    slope = (side * (n * torch.pow(s, n - 1.0) - r)).clamp(min=0.0)
    curve = n * (n - 1.0) * torch.pow(s, (n - 2.0).clamp(min=0.0))
    d = 2.0 * wanted / (slope + (slope * slope + 2.0 * curve * wanted).sqrt()).clamp(min=TINY)
    base = torch.pow(s, n)
    # right of s, where the power outgrows its curvature: two bounds from above
    far = torch.minimum(d, torch.pow(wanted, 1.0 / n))
    for _ in range(2):
        far = torch.minimum(far, torch.pow(wanted + base + r * far, 1.0 / n) - s)
        far = far.clamp(min=0.0)
    d = torch.minimum(torch.where(side > 0, far, d), room).clamp(min=0.0)
    for _ in range(STEPS):
        x = (s + side * d).clamp(min=0.0)
        lower = torch.pow(x, n - 1.0)
        value = x * lower - base - side * r * d - wanted
        steep = side * (n * lower - r)
        # where both vanish, a quotient of rounding errors would throw d across the interval
        clear = value.abs() > n * NOISE * (x * lower + base + r * d)
        step = (value / steep.clamp(min=TINY)).masked_fill(~clear, 0.0)
        d = torch.where(steep > 0, torch.minimum((d - step).clamp(min=0.0), room), d)
    return d
