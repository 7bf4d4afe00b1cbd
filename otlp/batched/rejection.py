"""Single-draft rejection sampling on a selected token: what makes every selection lossless."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.residual import draw_residual
from otlp.batched.rows import Rows


def accept_or_replace(
    rows: Rows, level: Tensor, selected: Tensor, accept: Tensor, replace: Tensor
) -> tuple[Tensor, Tensor]:
    """Accept the selected token i with probability min(1, p_i / y_i), or replace it.

    The replacement follows (p - y)^+, so the output follows p exactly if y is the true
    distribution of the selected token.

    Parameters
    ----------
    rows : Rows
    level : Tensor, shape (B, V) or (B, 1), float64
        y / q, as p and q are stored; infinite where y = p.
    selected : Tensor, shape (B, 1), int64
    accept, replace : Tensor, shape (B,)
        Independent uniform numbers.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
    accepted : Tensor, shape (B,), bool
        Whether the token is one of the drafted ones.
    """
    # a row without drafts selects nothing
    level = level.masked_fill(rows.n == 0, 0.0)
    ratio = level.expand_as(rows.draft).gather(1, selected)
    drawn = rows.draft.gather(1, selected) * ratio
    keep = accept[:, None] * drawn < rows.target.gather(1, selected)
    keep = (keep | ratio.isinf()) & (rows.n > 0)
    anew = draw_residual(rows.target, rows.draft, level, replace[:, None])
    tokens = torch.where(keep, selected, anew)[:, 0]
    return tokens, is_drafted(rows, tokens)


def is_drafted(rows: Rows, tokens: Tensor) -> Tensor:
    """Whether each row's verified token is one of its drafted ones, shape (B,)."""
    return ((rows.tokens == tokens[:, None]) & rows.drafted).any(1)
