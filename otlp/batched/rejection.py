"""Single-draft rejection sampling on a selected token: what makes every selection lossless."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, draw_index
from otlp.batched.rows import Rows


def accept_or_replace(
    rows: Rows, selection: Tensor, selected: Tensor, accept: Tensor, replace: Tensor
) -> tuple[Tensor, Tensor]:
    """Accept the selected token i with probability min(1, p_i / y_i), or replace it.

    The replacement follows (p - y)^+, so the output follows p exactly if y is the true
    distribution of the selected token.

    Parameters
    ----------
    rows : Rows
    selection : Tensor, shape (B, V), float64
        y; 0 in rows without drafts.
    selected : Tensor, shape (B, 1), int64
    accept, replace : Tensor, shape (B,)
        Independent uniform numbers.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
    accepted : Tensor, shape (B,), bool
        Whether the token is one of the drafted ones.
    """
    target = rows.target / rows.target_sum  # float64, and not the caller's own
    wanted, drawn = target.gather(1, selected)[:, 0], selection.gather(1, selected)[:, 0]
    # a trace of p, lost beside any other residual: rounding may leave none at all
    left = target.sub_(selection).clamp_(min=0.0).add_(rows.target, alpha=TINY)
    anew = draw_index(left, replace[:, None])
    # a row without drafts selects nothing
    keep = (accept * drawn < wanted) & (rows.n[:, 0] > 0)
    tokens = torch.where(keep, selected[:, 0], anew[:, 0])
    return tokens, is_drafted(rows, tokens)


def is_drafted(rows: Rows, tokens: Tensor) -> Tensor:
    """Whether each row's verified token is one of its drafted ones, shape (B,)."""
    return ((rows.tokens == tokens[:, None]) & rows.drafted).any(1)
