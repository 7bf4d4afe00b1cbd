"""Scores whose distribution functions are chains of powers and affine maps: a batch of them.

As `otlp.numerics.score_chains`, in fixed shapes: a slice that is left out keeps its cells, of no
mass, and every score of a batch has as many cells and links.  Winners are found by drawing the
scores, each by inverting its chain, instead of an integral over all.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.numerics import TINY

THIN = 1e-9
"""Part of a cell that is too thin to be cut off."""


class ChainScores(NamedTuple):
    """M scores in J links and C cells; all but `wins` and `masses` are logarithms.

    Attributes
    ----------
    edges, widths : Tensor, shape (M, C), float64
        Left ends of the cells, ascending, and their widths; minus infinity is 0.
    wins : Tensor, shape (M, C), float64
        Law of the cell that the score is in, given that it wins.
    masses : Tensor, shape (M, C), float64
        Rise of the distribution function F over each cell; 0 in cells that are left out.
    powers : Tensor, shape (M, J), float64
        Exponent of each link; not a logarithm either.
    left : Tensor, shape (M, J + 1, C), float64
        z, and the chain after each link, at the left ends.
    slopes : Tensor, shape (M, J, C), float64
        Slopes of the affine maps after each power.
    """

    edges: Tensor
    widths: Tensor
    wins: Tensor
    masses: Tensor
    powers: Tensor
    left: Tensor
    slopes: Tensor

    def take(self, index: Tensor) -> ChainScores:
        """Scores by number, with repeats."""
        return ChainScores(*(part[index] for part in self))

    @property
    def bottom(self) -> Tensor:
        """Probability that a score is one that never wins, shape (M, 1)."""
        return self.left[:, -1, :1].exp()


class Place(NamedTuple):
    """A place in each score: its cell, and the logarithm of the way into it; shape (M, P) each."""

    cell: Tensor
    offset: Tensor


def root_scores(count: int, like: Tensor) -> ChainScores:
    """Scores of `count` roots: F(z) = z, and uniform given that it wins."""
    one = torch.ones(count, 1, dtype=torch.float64, device=like.device)
    none, zero = torch.full_like(one, -torch.inf), torch.zeros_like(one)
    chain = none[:, None].expand(-1, 2, -1)
    return ChainScores(none, zero, one, one, one, chain, zero[:, None])


def powered(scores: ChainScores, power: Tensor) -> ChainScores:
    """Each F to its power h > 0, shape (M, 1): the share of one of several whose maximum has F."""
    last = scores.left[:, -1]
    every = torch.arange(last.shape[1], device=last.device).expand_as(last)
    rise = _power_rise(last, _rises(scores, Place(every, scores.widths))[-1], power)
    return scores._replace(
        masses=rise.exp(),
        powers=torch.cat([scores.powers, power], 1),
        left=torch.cat([scores.left, (power * last)[:, None]], 1),
        slopes=torch.cat([scores.slopes, torch.zeros_like(last)[:, None]], 1),
    )


def slices(scores: ChainScores, place: Place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Masses of F below and above places, and of the law of the win, shape (M, P) each."""
    at = place.cell
    mass, win = scores.masses.gather(1, at), scores.wins.gather(1, at)
    part = torch.minimum(_rises(scores, place)[-1].exp(), mass)
    won = win * _part(place.offset, scores.widths.gather(1, at))
    below, won_below = (_before(part).gather(1, at) for part in (scores.masses, scores.wins))
    above, won_above = (
        _before(part.flip(1)).flip(1).gather(1, at) for part in (scores.masses, scores.wins)
    )
    return (
        scores.bottom + below + part, above + (mass - part),
        won_below + won, won_above + (win - won),
    )  # fmt: skip


def top_mean(scores: ChainScores) -> Tensor:
    """Mean density of the win over F where a slice above is empty: at its top, shape (M, 1)."""
    last = _last(scores)
    rise, rate = scores.widths.gather(1, last), torch.ones_like(scores.bottom)
    for j in range(scores.powers.shape[1]):
        base = scores.left[:, j].gather(1, last)
        power = scores.powers[:, j, None]
        rate = rate * _power_rate(base, rise, power)
        rise = _power_rise(base, rise, power) + scores.slopes[:, j].gather(1, last)
    return scores.wins.gather(1, last) / (rise.exp() * rate).clamp(min=TINY)


def ends(scores: ChainScores) -> tuple[Tensor, Tensor]:
    """Logarithms of where the cells with mass begin and end, shape (M, 1) each."""
    first, last = (scores.masses > 0).to(torch.int8).argmax(1, keepdim=True), _last(scores)
    high = torch.logaddexp(scores.edges.gather(1, last), scores.widths.gather(1, last))
    return scores.edges.gather(1, first), high


def place_at(scores: ChainScores, log_z: Tensor) -> Place:
    """Places of coordinates, shape (M, P); thin parts of cells are not cut off."""
    cell = (scores.edges[:, 1:, None] <= log_z[:, None]).sum(1)
    edge, width = scores.edges.gather(1, cell), scores.widths.gather(1, cell)
    gap = log_z - edge
    offset = torch.where(edge == -torch.inf, log_z, edge + _log_expm1(gap.clamp(min=0.0)))
    offset = torch.minimum(torch.where(gap > 0, offset, -torch.inf), width)
    won = _part(offset, width)
    mass = scores.masses.gather(1, cell).clamp(min=TINY)
    part = _rises(scores, Place(cell, offset))[-1].exp() / mass
    offset = torch.where(torch.maximum(won, part) < THIN, -torch.inf, offset)
    return Place(cell, torch.where(torch.minimum(won, part) > 1.0 - THIN, width, offset))


def win_place(scores: ChainScores, mass: Tensor) -> Place:
    """Places that so much of the law of the win lies below, shape (M, P)."""
    so_far = scores.wins.cumsum(1)
    cell = torch.searchsorted(so_far, mass.contiguous(), right=True)
    cell = torch.minimum(cell, _last(scores))
    win = scores.wins.gather(1, cell)
    inside = mass - _before(scores.wins).gather(1, cell)
    inside = torch.minimum(inside.clamp(min=0.0), win)
    return Place(cell, scores.widths.gather(1, cell) + (inside / win.clamp(min=TINY)).log())


def cut(scores: ChainScores, place: Place) -> ChainScores:
    """Cut one cell of each score in two, at places of shape (M, 1); one cell more, F unchanged.

    The cells up to the place's lie below it, the others above.
    """
    count = torch.arange(scores.edges.shape[1] + 1, device=place.cell.device)
    lower, upper = count == place.cell, count == place.cell + 1
    source = count - (count > place.cell).long()

    def spread(part: Tensor) -> Tensor:
        return part.gather(1, source)

    rises = _rises(scores, place)
    left, slopes = [], []
    for j, rise in enumerate(rises):
        base = spread(scores.left[:, j])
        left.append(torch.where(upper, torch.logaddexp(base, rise), base))
    width, wins = spread(scores.widths), spread(scores.wins)
    share = _part(place.offset, scores.widths.gather(1, place.cell))
    widths = torch.where(lower, place.offset, width)
    widths = torch.where(upper, width + torch.log1p(-share), widths)
    wins = torch.where(lower, wins * share, torch.where(upper, wins * (1.0 - share), wins))
    rise = widths
    for j in range(scores.powers.shape[1]):
        slopes.append(spread(scores.slopes[:, j]))
        rise = _power_rise(left[j], rise, scores.powers[:, j, None]) + slopes[j]
    masses = torch.where(lower | upper, rise.exp(), spread(scores.masses))
    return ChainScores(
        torch.where(upper, left[0], spread(scores.edges)), widths, wins, masses, scores.powers,
        torch.stack(left, 1), torch.stack(slopes, 1),
    )  # fmt: skip


def scaled(scores: ChainScores, factor: Tensor, bottom: Tensor) -> ChainScores:
    """Scale the rises of F in each cell, shape (M, C), and let it start at `bottom`, (M, 1).

    Cells that are scaled by 0 are left out.  The law of the win is scaled alike and normalised.
    """
    masses, wins = scores.masses * factor, scores.wins * factor
    top = (bottom + _before(masses)).log()
    slopes = torch.cat([scores.slopes[:, :-1], scores.slopes[:, -1:] + factor.log()[:, None]], 1)
    return scores._replace(
        wins=wins / wins.sum(1, keepdim=True).clamp(min=TINY),
        masses=masses,
        left=torch.cat([scores.left[:, :-1], top[:, None]], 1),
        slopes=slopes,
    )


def draw_places(scores: ChainScores, uniform: Tensor) -> Tensor:
    """Draw each score by inversion, shape (M,), as log z; minus infinity never wins.

    Parameters
    ----------
    scores : ChainScores
    uniform : Tensor, shape (M,)
        In [0, 1).
    """
    level = uniform[:, None]
    reached = scores.bottom + scores.masses.cumsum(1)
    cell = torch.searchsorted(reached, level, right=True)
    cell = torch.minimum(cell, _last(scores))
    rise = (level - scores.bottom - _before(scores.masses).gather(1, cell)).clamp(min=0.0)
    rise = torch.minimum(rise, scores.masses.gather(1, cell)).log()
    for j in reversed(range(scores.powers.shape[1])):
        power = scores.powers[:, j, None]
        base = power * scores.left[:, j].gather(1, cell)
        rise = _power_rise(base, rise - scores.slopes[:, j].gather(1, cell), 1.0 / power)
    edge = scores.edges.gather(1, cell)
    rise = torch.minimum(rise, scores.widths.gather(1, cell))
    return torch.where(level < scores.bottom, -torch.inf, torch.logaddexp(edge, rise))[:, 0]


def _before(parts: Tensor) -> Tensor:
    """Sums of the parts before each, along the second axis."""
    return torch.nn.functional.pad(parts, (1, -1)).cumsum(1)


def _part(offset: Tensor, width: Tensor) -> Tensor:
    """e^offset of e^width, at most 1; none of nothing."""
    return (offset - width).nan_to_num(-torch.inf).exp().clamp(max=1.0)


def _last(scores: ChainScores) -> Tensor:
    """Last cell with mass, shape (M, 1)."""
    count = torch.arange(scores.masses.shape[1], device=scores.masses.device)
    return torch.where(scores.masses > 0, count, 0).amax(1, keepdim=True)


def _rises(scores: ChainScores, place: Place) -> list[Tensor]:
    """Logarithms of the rises of z, and of the chain after each link, up to places."""
    rises = [place.offset]
    for j in range(scores.powers.shape[1]):
        base, slope = (part[:, j].gather(1, place.cell) for part in (scores.left, scores.slopes))
        rises.append(_power_rise(base, rises[-1], scores.powers[:, j, None]) + slope)
    return rises


def _log_expm1(y: Tensor) -> Tensor:
    """log(e^y - 1) for y >= 0."""
    return y + (-torch.expm1(-y)).log()


def _power_rise(base: Tensor, rise: Tensor, power: Tensor) -> Tensor:
    """Logarithm of (e^base + e^rise)^h - e^(h base)."""
    x = (rise - base).nan_to_num(torch.inf)
    start = power * base
    grown = start + _log_expm1(power * torch.logaddexp(x, torch.zeros_like(x)))
    # beside a large base the power is linear; from 0 it is a power
    grown = torch.where(x < -36.0, start + power.log() + x, grown)
    grown = torch.where((base == -torch.inf) | (rise == -torch.inf), power * rise, grown)
    return torch.where(power == 1.0, rise, grown)


def _power_rate(base: Tensor, rise: Tensor, power: Tensor) -> Tensor:
    """Derivative of `_power_rise` by the rise."""
    x = (rise - base).nan_to_num(torch.inf)
    y = power * torch.logaddexp(x, torch.zeros_like(x))
    rate = power * torch.sigmoid(x) / (-torch.expm1(-y)).clamp(min=TINY)
    rate = torch.where((base == -torch.inf) | (rise == -torch.inf), power, rate)
    return torch.where((x < -36.0) | (power == 1.0), 1.0, rate)
