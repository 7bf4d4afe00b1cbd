"""Block verification of one path per row, by elementwise passes over the vocabulary without a sort.

The prefix of i tokens has a weight w_i and a residual of mass e_i.  Each prefix passes with
probability e_i / (e_i + 1 - w_i), and the longest prefix that passes is accepted (Sun et al. 2024,
Block Verification Accelerates Speculative Decoding, Algorithm 2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.numerics import TINY, draw_index
from otlp.batched.rows import PADDING


def verify_block(
    target: Tensor, draft: Tensor, tokens: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Verify one path of L drafted tokens per row, as `otlp.batched.verify_paths` does for K = 1.

    Parameters
    ----------
    target : Tensor, shape (B, 1, L + 1, V)
    draft : Tensor, shape (B, 1, L, V)
    tokens : Tensor, shape (B, 1, L), int64
    numbers : Tensor, shape (B, L + 3), float64
        Uniform random numbers.  The first number, which selects a path for K > 1, is unused.

    Returns
    -------
    tokens, accepted, path : Tensor
        The fields of `BatchedRound`.

    Notes
    -----
    Weights are w_i = min(1, w_{i-1} p(x_i) / q(x_i)), residuals (w_i p - q)^+.  A path ends at the
    first draft row of zeros: no later token is accepted, and the token after the accepted prefix is
    drawn from the target.
    """
    path = tokens[:, 0]
    p, p_sum = _wide(target[:, 0])
    q, q_sum = _wide(draft[:, 0])
    ratio = _at(p[:, :-1], path) * q_sum / (_at(q, path) * p_sum[:, :-1]).clamp(min=TINY)
    weights = [torch.ones_like(numbers[:, 0])]
    for level in range(path.shape[1]):
        weights.append((weights[-1] * ratio[:, level]).clamp(max=1.0))
    weight = torch.stack(weights, 1)
    # Weights of all prefixes except the whole path, over the sums of p, which is not normalised.
    scale = (weight[:, :-1] / p_sum[:, :-1])[..., None]
    left = torch.addcmul(q.mul(-1.0 / q_sum[..., None].clamp(min=TINY)), p[:, :-1], scale).clamp_(
        min=0.0
    )
    output, accepted = accept_block(p, left, weight, path, numbers[:, 1:])
    return output, accepted, torch.zeros_like(accepted)


def accept_block(
    p: Tensor, left: Tensor, weights: Tensor, path: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw the accepted length of one path per row and the token after the accepted prefix.

    Parameters
    ----------
    p : Tensor, shape (B, L + 1, V), float64
        Target distribution after each prefix, up to a factor.
    left : Tensor, shape (B, L, V), float64
        Residual of each prefix except the whole path.
    weights : Tensor, shape (B, L + 1), float64
        Weights of the prefixes.
    path : Tensor, shape (B, L), int64
        Drafted tokens.
    numbers : Tensor, shape (B, L + 2), float64
        Uniform random numbers: one for each prefix and one for the token.

    Returns
    -------
    tokens, accepted : Tensor
        The fields of `BatchedRound`.
    """
    batch, length = path.shape
    rows, depth = (torch.arange(size, device=path.device) for size in (batch, length + 1))
    mass = left.sum(2)
    # The longest prefix that passes is accepted.
    accepted = torch.where(numbers[:, :-1] < stop_probabilities(mass, weights), depth, 0).amax(1)
    # Only rounding can stop the path at a prefix whose residual is zero.
    inside = accepted.clamp(max=length - 1)
    bare = (accepted == length) | (mass[rows, inside] <= 0.0)
    weights_left = torch.where(bare[:, None], p[rows, accepted], left[rows, inside])
    last = draw_index(weights_left, numbers[:, -1:])
    prefix = torch.nn.functional.pad(path, (0, 1), value=PADDING)
    output = torch.where(depth < accepted[:, None], prefix, PADDING)
    return torch.where(depth == accepted[:, None], last, output), accepted


def stop_probabilities(mass: Tensor, weights: Tensor) -> Tensor:
    """Return the probability of accepting each prefix, given that no longer prefix is accepted.

    Parameters
    ----------
    mass : Tensor, shape (B, L), float64
        Masses of the residuals.
    weights : Tensor, shape (B, L + 1), float64
        Weights of the prefixes.

    Returns
    -------
    Tensor, shape (B, L + 1), float64
        Probabilities; 1 for the empty prefix.
    """
    # Compute 1 - w first: in 1 + mass a tiny mass would be lost, and the quotient could exceed 1.
    stop = mass / (mass + (1.0 - weights[:, :-1])).clamp(min=TINY)
    return torch.cat([torch.ones_like(stop[:, :1]), stop[:, 1:], weights[:, -1:]], 1)


def _wide(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in float64 and their sums."""
    wide = rows.double()
    return wide, wide.sum(-1)


def _at(rows: Tensor, path: Tensor) -> Tensor:
    return rows.gather(2, path[..., None])[..., 0]
