"""The most even of the best selections: the slopes of a least concave majorant.

With tokens ordered by p / q, each has in that ordering alone what the prefix sums F of their
chances rise by.  A law y whose sums are never below F is a selection, and a best one if it exceeds
p where F - P rises to its largest, and falls short of p elsewhere.  The least concave majorant of F
over P is one, and y / p, its slope, is as even as can be: so little is to be swapped, and by what y
differs from p the swaps may miss it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

ROUNDS = 20
"""Of the hull; each about halves the steps between the points that it has yet."""

FLAT = 1e-10
"""A point so little above a chord may lie on it."""


def concave_majorant(target: Tensor, inside: Tensor, look: bool) -> Tensor:
    """Slopes of the majorant times p, (B, V).

    Parameters
    ----------
    target : Tensor, shape (B, V), float64
        p, ordered by p / q.
    inside : Tensor, shape (B, V), float64
        F: the probability that all drafts are among the first tokens.
    look : bool
        End when no point is above a chord, which waits for the device.

    Notes
    -----
    A quick hull of the points (P, F), all chords at once: each is cut where F is highest above it.
    """
    size = target.shape[1]
    across, up = (pad(part, (1, 0)) for part in (target.cumsum(1), inside))
    places = torch.arange(size + 1, device=target.device)
    corner = ((places == 0) | (places == size)).expand(up.shape)
    left, right = _chords(corner, places)
    for _ in range(ROUNDS):
        width, rise = (part.gather(1, right) - part.gather(1, left) for part in (across, up))
        over = (up - up.gather(1, left)) * width - rise * (across - across.gather(1, left))
        over = over - FLAT * width
        highest = torch.zeros_like(up).scatter_reduce(1, left, over, "amax").gather(1, left)
        found = (over == highest) & (over > 0.0)
        if look and not bool(found.any()):
            break
        corner = corner | found
        left, right = _chords(corner, places)
    begin, end = left[:, :-1], right[:, 1:]
    width, rise = (part.gather(1, end) - part.gather(1, begin) for part in (across, up))
    pooled = (end - begin > 1) & (width > 0.0)
    return torch.where(pooled, target * (rise / width), torch.diff(up, dim=1))


def _chords(corner: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The corners before and after each point; it is its own if it is one."""
    left = torch.where(corner, places, 0).cummax(1).values
    right = torch.where(corner, places, places[-1]).flip(1).cummin(1).values.flip(1)
    return left, right
