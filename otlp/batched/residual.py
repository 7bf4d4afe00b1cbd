"""Draws from the residual (p - y)^+ of a selection distribution y, in integers.

A block of tokens is drawn from the sums of blocks, then a token from the prefix sums of the block.
Prefix sums of the whole vocabulary would cost more than all other operations in this file.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from otlp.batched.numerics import before, random_integer
from otlp.batched.ratio_bins import UNIT

BLOCK = 512
"""Number of tokens in a block."""


def draw_residual(target: Tensor, draft: Tensor, level: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token per row from (p - level q)^+.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V), float32 or float64
        p and q as stored.
    level : Tensor, shape (B, V) or (B, 1), float64
        y / q, infinite where y = p; 0 in rows that select nothing, whose token follows p.
    uniform : Tensor, shape (B, 1), float64
        Uniform random numbers in [0, 1).

    Returns
    -------
    Tensor, shape (B, 1), int64
        Tokens of positive probability.  If the residual is zero, which only rounding can cause, the
        token is the most likely token.
    """
    weight = (draft.double() * (level * UNIT)).neg_().add_(target.double() * UNIT).clamp_(min=0.0)
    batch, size = target.shape
    blocks = pad(weight.long(), (0, -size % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(2).cumsum(1)
    draw = random_integer(uniform, sums[:, -1:])
    block = (sums <= draw).sum(1, keepdim=True).clamp_(max=blocks.shape[1] - 1)
    inside = blocks.gather(1, block[:, :, None].expand(batch, 1, BLOCK))[:, 0].cumsum(1)
    found = BLOCK * block + (inside <= draw - before(sums, block)).sum(1, keepdim=True)
    left = sums[:, -1:] > 0
    return torch.where(left, found, target.argmax(1, keepdim=True))
