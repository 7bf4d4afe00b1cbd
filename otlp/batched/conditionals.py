"""The batched plan given the drafts, pi(. | drafts), exactly: for tests and small vocabularies."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, swap
from otlp.batched.martingale import martingale_plan
from otlp.batched.numerics import TINY, before, best_of
from otlp.batched.rows import Rows, by_rows, prepare


def conditional(
    target: Tensor, draft: Tensor, draft_tokens: Tensor, *, validate: bool = True
) -> Tensor:
    """Distribution of the token that `otlp.batched.verify` returns, given the drafts.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `otlp.batched.verify`.

    Returns
    -------
    Tensor, shape (B, V), float64
        Rows sum to one; right to about 1e-14 / q for the least likely draft.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        As `otlp.batched.verify`.

    Notes
    -----
    O(V N^2) time and memory a row: meant for V up to a few thousand.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> rows = batched.conditional(target, draft, torch.tensor([[0, 0]]))
    >>> [round(x, 6) for x in rows[0].tolist()]
    [0.4, 0.6, 0.0]
    """
    rows = prepare(target, draft, draft_tokens, validate)
    # scores on all cells, for each draft left out in turn
    (found,) = by_rows(_conditional, rows, most=rows.tokens.shape[1] ** 2)
    return found


def _conditional(rows: Rows) -> tuple[Tensor]:
    coupling, place, selection = martingale_plan(rows)
    p, _ = rows.normalised()
    cell = coupling.cell(rows.at_drafts(place))
    picked = best_of(score_laws(coupling, cell), rows.drafted)
    accepted = (rows.at_drafts(p) / rows.at_drafts(selection)).nan_to_num(1.0).clamp(max=1.0)
    kept = picked * accepted
    left = (p - selection).clamp(min=0.0)
    rest = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    rest = rest * (1.0 - kept.sum(1, keepdim=True)).clamp(min=0.0) / rest.sum(1, keepdim=True)
    return (rest.scatter_add(1, rows.tokens.clamp(min=0), kept),)


def score_laws(coupling: Coupling, cell: Tensor) -> Tensor:
    """Mass of the score of drafts on every cell.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, N), int64
        Cell of each draft, N >= n.

    Returns
    -------
    Tensor, shape (B, N, M), float64
        The distribution of what `otlp.batched.coupling.scores` draws.
    """
    (batch, count), size = cell.shape, coupling.ends.shape[1]
    every = torch.arange(size, device=cell.device).expand(batch, size)
    shared = torch.zeros_like(coupling.ends[:, None])
    for start, stop, partners in coupling.needs(cell):
        start, stop = start[..., None], stop[..., None]
        left, right = before(partners, every)[:, None], partners[:, None]
        overlap = (torch.minimum(stop, right) - torch.maximum(start, left)).clamp(min=0.0)
        shared = shared + overlap / (stop - start).clamp(min=TINY)
    here, there = cell.repeat_interleave(size, 1), every.repeat(1, count)
    moved = shared * swap(coupling, here, there, count).view(batch, count, size)
    return moved.scatter_add(2, cell[..., None], 1.0 - moved.sum(2, keepdim=True))
