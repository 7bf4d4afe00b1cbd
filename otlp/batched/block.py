"""Block verification of one path a row: elementwise passes over the vocabulary, and no sort.

The prefix x of i tokens has a weight w_i and a residual of mass e_i.  The longest that passes with
probability e_i / (e_i + 1 - w_i) is accepted (Sun et al. 2024, Block Verification Accelerates
Speculative Decoding, Algorithm 2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, draw_index
from otlp.batched.rows import PADDING


def verify_block(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Verify one path of L drafted tokens a row, as `otlp.batched.verify_paths` does for K = 1.

    Parameters
    ----------
    target : Tensor, shape (B, 1, L + 1, V)
    draft : Tensor, shape (B, 1, L, V)
    tokens : Tensor, shape (B, 1, L), int64
    numbers : Tensor, shape (B, L + 3), float64
        Uniform random numbers; the first, which would select a path, is not looked at.

    A path ends where a row of the draft is zero: nothing is accepted from there on, and the token
    after what is accepted is drawn from the target.

    Returns
    -------
    tokens, accepted, path : Tensor
        As the fields of `BatchedRound`.

    Notes
    -----
    Weights are w_i = min(1, w_{i-1} p(x_i) / q(x_i)), residuals (w_i p - q)^+.
    """
    path = tokens[:, 0]
    p, p_sum = _wide(target[:, 0])
    q, q_sum = _wide(draft[:, 0])
    ratio = _at(p[:, :-1], path) * q_sum / (_at(q, path) * p_sum[:, :-1]).clamp(min=TINY)
    weights = [torch.ones_like(numbers[:, 0])]
    for level in range(path.shape[1]):
        weights.append((weights[-1] * ratio[:, level]).clamp(max=1.0))
    weight = torch.stack(weights, 1)
    # of each prefix but the whole path, per unit of p's and q's own sums
    scale = (weight[:, :-1] / p_sum[:, :-1])[..., None]
    left = torch.addcmul(q.mul(-1.0 / q_sum[..., None].clamp(min=TINY)), p[:, :-1], scale).clamp_(
        min=0.0
    )
    output, accepted = accept_block(p, left, weight, path, numbers[:, 1:])
    return output, accepted, torch.zeros_like(accepted)


def accept_block(
    p: Tensor, left: Tensor, weights: Tensor, path: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw how much of one path a row is accepted, and the token after it.

    Parameters
    ----------
    p : Tensor, shape (B, L + 1, V), float64
        The target after each prefix, up to a factor.
    left : Tensor, shape (B, L, V), float64
        Residual of each prefix but the whole path.
    weights : Tensor, shape (B, L + 1), float64
        Of the prefixes.
    path : Tensor, shape (B, L), int64
    numbers : Tensor, shape (B, L + 2), float64
        Uniform: one for each prefix, one for the token.

    Returns
    -------
    tokens, accepted : Tensor
        As the fields of `BatchedRound`.
    """
    batch, length = path.shape
    rows, depth = (torch.arange(size, device=path.device) for size in (batch, length + 1))
    mass = left.sum(2)
    # the longest prefix that passes is accepted
    accepted = torch.where(numbers[:, :-1] < stops(mass, weights), depth, 0).amax(1)
    # a prefix without residual is the longest accepted by rounding only
    inside = accepted.clamp(max=length - 1)
    bare = (accepted == length) | (mass[rows, inside] <= 0.0)
    weights_left = torch.where(bare[:, None], p[rows, accepted], left[rows, inside])
    last = draw_index(weights_left, numbers[:, -1:])
    prefix = torch.nn.functional.pad(path, (0, 1), value=PADDING)
    output = torch.where(depth < accepted[:, None], prefix, PADDING)
    return torch.where(depth == accepted[:, None], last, output), accepted


def stops(mass: Tensor, weights: Tensor) -> Tensor:
    """Probability of accepting the prefix of each length, given that no longer one is.

    Parameters
    ----------
    mass : Tensor, shape (B, L), float64
        Of the residuals.
    weights : Tensor, shape (B, L + 1), float64

    Returns
    -------
    Tensor, shape (B, L + 1), float64
        1 for the empty prefix.
    """
    # 1 - w first: next to 1 a tiny mass would be lost, and the quotient exceed 1
    stop = mass / (mass + (1.0 - weights[:, :-1])).clamp(min=TINY)
    return torch.cat([torch.ones_like(stop[:, :1]), stop[:, 1:], weights[:, -1:]], 1)


def _wide(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in float64 and their sums."""
    wide = rows.double()
    return wide, wide.sum(-1)


def _at(rows: Tensor, path: Tensor) -> Tensor:
    return rows.gather(2, path[..., None])[..., 0]
