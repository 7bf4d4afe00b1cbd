"""A token drawn from what a selection distribution y leaves of p: (p - y)^+, in integers.

Sums of blocks find the block, and its prefix sums the token: prefix sums of a whole vocabulary
would cost more than all else here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.numerics import before, share
from otlp.batched.ratio_bins import UNIT

BLOCK = 512
"""Tokens whose residuals are added up before a block is drawn."""


def draw_residual(target: Tensor, draft: Tensor, level: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token of each row from (p - level q)^+.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V), float32 or float64
        p and q as stored.
    level : Tensor, shape (B, V) or (B, 1), float64
        y / q, infinite where y = p; 0 in rows that select nothing, whose token follows p.
    uniform : Tensor, shape (B, 1), float64
        In [0, 1).

    Returns
    -------
    Tensor, shape (B, 1), int64
        The token never has probability 0.  If nothing is left, which happens by rounding only, the
        token is the likeliest one.
    """
    weight = (draft.double() * (level * UNIT)).neg_().add_(target.double() * UNIT).clamp_(min=0.0)
    batch, size = target.shape
    blocks = pad(weight.long(), (0, -size % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(2).cumsum(1)
    aim = share(uniform, sums[:, -1:])
    block = (sums <= aim).sum(1, keepdim=True).clamp_(max=blocks.shape[1] - 1)
    inside = blocks.gather(1, block[:, :, None].expand(batch, 1, BLOCK))[:, 0].cumsum(1)
    found = BLOCK * block + (inside <= aim - before(sums, block)).sum(1, keepdim=True)
    left = sums[:, -1:] > 0
    return torch.where(left, found, target.argmax(1, keepdim=True))
