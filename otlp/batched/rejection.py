"""Single-draft rejection sampling of a selected token, which makes every selection lossless."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.residual import draw_residual
from otlp.batched.rows import Rows


def accept_or_replace(
    rows: Rows, level: Tensor, selected: Tensor, accept: Tensor, replace: Tensor
) -> tuple[Tensor, Tensor]:
    """Accept the selected token i with probability min(1, p_i / y_i), otherwise replace it.

    The replacement is drawn from (p - y)^+, so the output follows p exactly if y is the
    distribution of the selected token.

    Parameters
    ----------
    rows : Rows
    level : Tensor, shape (B, V) or (B, 1), float64
        y / q of the stored p and q; infinite where y = p.
    selected : Tensor, shape (B, 1), int64
        Selected token of each row.
    accept, replace : Tensor, shape (B,)
        Independent uniform random numbers.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
    accepted : Tensor, shape (B,), bool
        Whether the token is one of the drafted tokens.
    """
    # A row without drafts selects nothing; its residual is p.
    level = level.masked_fill(rows.n == 0, 0.0)
    ratio = level.expand_as(rows.draft).gather(1, selected)
    drawn = rows.draft.gather(1, selected) * ratio
    keep = accept[:, None] * drawn < rows.target.gather(1, selected)
    keep = (keep | ratio.isinf()) & (rows.n > 0)
    replacement = draw_residual(rows.target, rows.draft, level, replace[:, None])
    tokens = torch.where(keep, selected, replacement)[:, 0]
    return tokens, is_drafted(rows, tokens)


def is_drafted(rows: Rows, tokens: Tensor) -> Tensor:
    """Return whether the verified token of each row is one of its drafted tokens, shape (B,)."""
    return ((rows.tokens == tokens[:, None]) & rows.drafted).any(1)
