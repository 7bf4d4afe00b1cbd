"""Slices of the batched plan, pi(. | drafts), by quadrature: for tests and small vocabularies."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otlp.batched.coupling import TINY, Coupling, before, partner, place_at
from otlp.batched.rows import prepare
from otlp.batched.verify import sorted_coupling
from otlp.distribution import FloatArray

__all__ = ["NODES", "selection", "slices"]

NODES = 48
"""Gauss-Legendre nodes a piece."""

FLATNESS = 5
"""Order to which the change of variable is flat at the ends of a piece."""


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
    O(V N) memory a row with a factor of over a hundred: meant for V up to a few thousand.
    """
    rows = prepare(target, draft, draft_tokens, validate)
    ratio = rows.ratio()
    coupling, _ = sorted_coupling(rows, ratio)
    p, q = rows.normalised()
    clipped = torch.clamp(ratio.double(), coupling.floor, coupling.ceiling)
    law = clipped * q * (rows.n > 0)
    picked = selection(coupling, rows.at_drafts(clipped), rows.drafted)
    kept = picked * (rows.at_drafts(p) / rows.at_drafts(law)).nan_to_num(1.0).clamp(max=1.0)
    left = (p - law).clamp(min=0.0)
    rest = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    rest = rest * (1.0 - kept.sum(1, keepdim=True)).clamp(min=0.0) / rest.sum(1, keepdim=True)
    return rest.scatter_add(1, rows.tokens.clamp(min=0), kept)


def selection(coupling: Coupling, ratio: Tensor, drafted: Tensor) -> Tensor:
    """Probability that each drafted token is selected, from the score laws.

    Parameters
    ----------
    coupling : Coupling
    ratio : Tensor, shape (B, N)
        Clipped ratio of each drafted token: one of ``coupling.ratio``.
    drafted : Tensor, shape (B, N), bool
        False at padding.

    Returns
    -------
    Tensor, shape (B, N), float64
        0 at padding.

    Notes
    -----
    A score at x belongs to the block around x, or has moved there from its partner place; so
    between the ends and splits of the blocks and their partners, the score densities are
    analytic but for roots at the piece's ends, which a change of variable flattens.
    """
    c = coupling
    yes = torch.ones_like(c.rise, dtype=torch.bool)
    cuts = [c.ends, c.split, place_at(c, c.rise, yes)[0], place_at(c, c.fall, ~yes)[0]]
    edges = torch.cat([torch.zeros_like(c.n), *cuts, torch.ones_like(c.n)], 1).sort(1).values
    place, weight, running, total = (torch.from_numpy(a).to(edges) for a in _rule())
    width = edges.diff(dim=1)[..., None]
    x = edges[:, :-1, None] + width * place
    middle = edges[:, :-1] + 0.5 * width[..., 0]
    block = torch.searchsorted(c.ends, middle, right=True).clamp(max=c.ends.shape[1] - 1)
    block = block[..., None].expand(x.shape).reshape(len(x), -1)
    _, moved, other = partner(c, block, x.reshape(len(x), -1))

    first = before(c.ends, torch.searchsorted(c.ratio, ratio))
    span = before(c.ends, torch.searchsorted(c.ratio, ratio, right=True)) - first
    here = c.ratio.gather(1, block)[:, None] == ratio[..., None]
    there = c.ratio.gather(1, other)[:, None] == ratio[..., None]
    density = (here * (1.0 - moved[:, None]) + there * moved[:, None]) / span.clamp(min=TINY)[
        ..., None
    ]
    density = density.reshape(*ratio.shape, *x.shape[1:]) * (width * weight)[:, None]
    whole = density @ total
    start = whole.cumsum(2) - whole
    below = start[..., None] + density @ running
    below = torch.where(drafted[..., None, None], below, 1.0)
    picked = torch.zeros_like(ratio)
    for m in range(ratio.shape[1]):
        others = torch.cat([below[:, :m], below[:, m + 1 :]], 1).prod(1)
        picked[:, m] = ((density[:, m] * others) @ total).sum(1)
    return picked.masked_fill(~drafted, 0.0)


def _rule() -> tuple[FloatArray, ...]:
    """Places and weights on [0, 1], the matrix of running integrals, and the full integral."""
    node, total = np.polynomial.legendre.leggauss(NODES)
    values = np.polynomial.legendre.legvander(node, NODES - 1)
    series = np.linalg.inv(values)
    antiderivative = np.polynomial.legendre.legint(series, lbnd=-1, axis=0)
    running = np.polynomial.legendre.legvander(node, NODES) @ antiderivative
    # the change of variable s -> place(s) has place' proportional to (1 - s^2)^FLATNESS
    bump = np.polynomial.polynomial.polypow([1.0, 0.0, -1.0], FLATNESS)
    ramp = np.polynomial.polynomial.polyint(bump, lbnd=-1)
    whole = np.polynomial.polynomial.polyval(1.0, ramp)
    place = np.polynomial.polynomial.polyval(node, ramp) / whole
    weight = np.polynomial.polynomial.polyval(node, bump) / whole
    return tuple(np.asarray(part, np.float64) for part in (place, weight, running.T, total))
