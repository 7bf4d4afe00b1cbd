"""Distribution of the token returned by `otlp.batched.martingale`, given the drafts."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, swap
from otlp.batched.martingale_rule import martingale_plan
from otlp.batched.numerics import before
from otlp.batched.ratio_bins import SIZE
from otlp.batched.rows import Rows, by_rows, prepare


def conditional(target: Tensor, draft: Tensor, draft_tokens: Tensor, size: int = SIZE) -> Tensor:
    """Return shape (B, V), float64, with error about 1e-14 / q for the least likely draft.

    Time and memory are O(V N^2) per row.
    """
    rows = prepare(target, draft, draft_tokens, validate=True)
    (found,) = by_rows(partial(_conditional, size=size), rows)
    return found


def _conditional(rows: Rows, size: int) -> tuple[Tensor]:
    coupling, bins = martingale_plan(rows, size)
    p, q = rows.target.double(), rows.draft.double()
    level = coupling.level.gather(1, bins)
    selection = torch.where(level.isinf(), p, q * level).masked_fill(rows.n == 0, 0.0)
    own = rows.at_drafts(bins)
    ratio = coupling.ratios(own, rows.at_drafts(p), rows.at_drafts(q))
    picked = best_of(score_laws(coupling, coupling.cell(own), ratio), rows.drafted)
    accepted = (rows.at_drafts(p) / rows.at_drafts(selection)).nan_to_num(1.0).clamp(max=1.0)
    kept = picked * accepted
    left = (p - selection).clamp(min=0.0)
    rest = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    rest = rest * (1.0 - kept.sum(1, keepdim=True)).clamp(min=0.0) / rest.sum(1, keepdim=True)
    return (rest.scatter_add(1, rows.tokens.clamp(min=0), kept),)


def score_laws(coupling: Coupling, cell: Tensor, ratio: Tensor) -> Tensor:
    """Mass of the score of drafts in every cell, shape (B, N, M).

    Masses and ratios of the drafts have shape (B, N), N >= n.  This is the distribution of the
    draws of `otlp.batched.coupling.scores`.
    """
    (batch, count), size = cell.shape, coupling.ends.shape[1]
    every = torch.arange(size, device=cell.device).expand(batch, size)
    shared = torch.zeros_like(coupling.ends[:, None])
    for start, stop, partners in coupling.needs(cell):
        start, stop = start[..., None], stop[..., None]
        left, right = before(partners, every)[:, None], partners[:, None]
        overlap = (torch.minimum(stop, right) - torch.maximum(start, left)).clamp(min=0)
        shared = shared + overlap.double() / (stop - start).clamp(min=1)
    here, there = cell.repeat_interleave(size, 1), every.repeat(1, count)
    chance = swap(coupling, here, there, ratio.repeat_interleave(size, 1), count)
    moved = shared * chance.view(batch, count, size)
    return moved.scatter_add(2, cell[..., None], 1.0 - moved.sum(2, keepdim=True))


def best_of(mass: Tensor, counts: Tensor) -> Tensor:
    """Probability that each of N independent scores is the largest, shape (B, N).

    The masses on M cells have shape (B, N, M), uniform within each cell; a mask (B, N) selects the
    scores.  Within a cell all distribution functions are linear, so the probability is the integral
    of a polynomial, computed exactly by Gauss-Legendre quadrature.
    """
    most = mass.shape[1]
    rule = np.polynomial.legendre.leggauss((most + 1) // 2)
    place, weight = (torch.from_numpy(part).to(mass) for part in rule)
    place, weight = 0.5 * (place + 1.0), 0.5 * weight
    below = (mass.cumsum(2) - mass)[..., None] + mass[..., None] * place
    below = torch.where(counts[..., None, None], below, 1.0)
    others = [torch.cat([below[:, :m], below[:, m + 1 :]], 1).prod(1) for m in range(most)]
    best = (mass * (torch.stack(others, 1) @ weight)).sum(2)
    return best.masked_fill(~counts, 0.0)
