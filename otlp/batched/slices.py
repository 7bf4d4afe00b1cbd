"""Slices of the batched plan, pi(. | drafts), exactly: for tests and small vocabularies."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otlp.batched.coupling import TINY, Coupling, before, swap
from otlp.batched.rows import prepare
from otlp.batched.verify import ranks, sorted_coupling

__all__ = ["score_laws", "selection", "slices"]


def slices(target: Tensor, draft: Tensor, draft_tokens: Tensor, *, validate: bool = True) -> Tensor:
    """Law of the token that `verify` returns, given the drafts.

    Parameters
    ----------
    target, draft, draft_tokens, validate
        As for `verify`.

    Returns
    -------
    Tensor, shape (B, V), float64
        Rows sum to one; right to about 1e-14 / q for the least likely draft.

    Notes
    -----
    O(V N^2) time and memory a row: meant for V up to a few thousand.
    """
    rows = prepare(target, draft, draft_tokens, validate)
    ratio = rows.ratio()
    coupling, order = sorted_coupling(rows, ratio)
    p, q = rows.normalised()
    clipped = torch.clamp(ratio.double(), coupling.floor, coupling.ceiling)
    law = clipped * q * (rows.n > 0)
    picked = selection(coupling, rows.at_drafts(ranks(order)), rows.drafted)
    kept = picked * (rows.at_drafts(p) / rows.at_drafts(law)).nan_to_num(1.0).clamp(max=1.0)
    left = (p - law).clamp(min=0.0)
    rest = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    rest = rest * (1.0 - kept.sum(1, keepdim=True)).clamp(min=0.0) / rest.sum(1, keepdim=True)
    return rest.scatter_add(1, rows.tokens.clamp(min=0), kept)


def selection(coupling: Coupling, block: Tensor, drafted: Tensor) -> Tensor:
    """Probability that each drafted token is selected, from the score laws.

    Parameters
    ----------
    coupling : Coupling
    block : Tensor, shape (B, N), int64
        Block of each drafted token; any at padding.
    drafted : Tensor, shape (B, N), bool
        False at padding.

    Returns
    -------
    Tensor, shape (B, N), float64
        0 at padding.

    Notes
    -----
    Within a cell scores are uniform, so the chance that the best score is a given draft's is a
    polynomial's integral, exact by Gauss-Legendre.
    """
    most = block.shape[1]
    rule = np.polynomial.legendre.leggauss((most + 1) // 2)
    place, weight = (torch.from_numpy(part).to(coupling.ends) for part in rule)
    place, weight = 0.5 * (place + 1.0), 0.5 * weight
    mass = score_laws(coupling, coupling.cell(block), most)
    below = (mass.cumsum(2) - mass)[..., None] + mass[..., None] * place
    below = torch.where(drafted[..., None, None], below, 1.0)
    others = [torch.cat([below[:, :m], below[:, m + 1 :]], 1).prod(1) for m in range(most)]
    best = (mass * (torch.stack(others, 1) @ weight)).sum(2)
    return best.masked_fill(~drafted, 0.0)


def score_laws(coupling: Coupling, cell: Tensor, most: int) -> Tensor:
    """Mass of the score of drafts on every cell.

    Parameters
    ----------
    coupling : Coupling
    cell : Tensor, shape (B, m), int64
    most : int
        N >= n.

    Returns
    -------
    Tensor, shape (B, m, M), float64
        The law of what `otlp.batched.coupling.scores` draws.
    """
    c, (batch, count), size = coupling, cell.shape, coupling.ends.shape[1]
    every = torch.arange(size, device=cell.device).expand(batch, size)
    shared = torch.zeros_like(c.ends[:, None])
    for own, other in ((c.up, c.down), (c.down, c.up)):
        start, stop = before(own, cell)[..., None], own.gather(1, cell)[..., None]
        left, right = before(other, every)[:, None], other[:, None]
        overlap = (torch.minimum(stop, right) - torch.maximum(start, left)).clamp(min=0.0)
        shared = shared + overlap / (stop - start).clamp(min=TINY)
    pairs = every.repeat(1, count), cell.repeat_interleave(size, 1)
    chance = swap(c, pairs[1], pairs[0], most).view(batch, count, size)
    moved = shared * chance
    return moved.scatter_add(2, cell[..., None], 1.0 - moved.sum(2, keepdim=True))
