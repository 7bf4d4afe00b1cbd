"""Formulas on tensors that several files share: float64, sums of positive terms, shapes fixed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "TINY",
    "before",
    "best_of",
    "draw_index",
    "inclusion_probability",
    "invert",
    "mean_of_powers",
    "power",
]

TINY = 1e-300
"""Keeps 0 / 0 from being NaN."""


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """``base ** exponent`` in place, for base >= 0 and exponent > 0; faster than `torch.pow`."""
    return base.log_().mul_(exponent).exp_()


def before(prefix: Tensor, index: Tensor) -> Tensor:
    """Read an inclusive prefix sum (B, M) just before `index` (B, ...); 0 at index 0."""
    return prefix.gather(1, (index - 1).clamp(min=0)).masked_fill(index == 0, 0.0)


def draw_index(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw indices of rows by inversion of the weights' prefix sums.

    Parameters
    ----------
    weights : Tensor, shape (B, M), float64
        Nonnegative; the sum need not be 1.
    uniform : Tensor, shape (B, m), float64
        In [0, 1).

    Returns
    -------
    index : Tensor, shape (B, m), int64
        Never one of weight 0, but where a row has no weight at all.
    total : Tensor, shape (B, 1), float64
        The sum of the weights.
    """
    cumulative = weights.cumsum(1)
    index, _ = invert(cumulative, uniform)
    if weights.device.type != "cpu":
        # prefix sums worked out in parallel may rise by rounding where a weight is 0
        heaviest = weights.argmax(1, keepdim=True)
        index = torch.where(weights.gather(1, index) > 0, index, heaviest)
    return index, cumulative[:, -1:]


def invert(cumulative: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Find where inclusive prefix sums (B, M) exceed levels uniform (B, m) in [0, total)."""
    total = cumulative[:, -1:]
    # rounding up to the total would find no index
    level = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, level, right=True)
    return index.clamp(max=cumulative.shape[1] - 1), level


def mean_of_powers(left: Tensor, right: Tensor, most: int, n: Tensor | None = None) -> Tensor:
    """Mean of n u^(n-1) over [a, b]: (b^n - a^n) / (b - a) without cancellation, 0 <= a <= b.

    Parameters
    ----------
    left, right : Tensor
        a and b, of one shape.
    most : int
        The largest n.
    n : Tensor, optional
        Each row's own, 1 to `most`; `most` for all by default.

    Returns
    -------
    Tensor
        The sum of a^i b^(n-1-i) over i < n.
    """
    mean, left_power = torch.ones_like(left), left
    for degree in range(1, most):
        longer = mean * right + left_power
        mean = longer if n is None else torch.where(degree < n, longer, mean)
        left_power = left_power * left
    return mean


def inclusion_probability(mass: Tensor, n: Tensor) -> Tensor:
    """1 - (1 - q)^n: that one of n i.i.d. drafts falls on mass q; accurate for small q."""
    return -torch.expm1(n * torch.log1p(-mass.clamp(max=1.0)))


def best_of(mass: Tensor, counts: Tensor) -> Tensor:
    """Probability that each of N independent scores is the largest.

    Parameters
    ----------
    mass : Tensor, shape (B, N, M), float64
        Mass of each score on M cells, side by side, uniform within each.
    counts : Tensor, shape (B, N), bool
        The scores that take part.

    Returns
    -------
    Tensor, shape (B, N), float64
        0 for scores that take no part.

    Notes
    -----
    Within a cell all distribution functions are linear, so the chance is a polynomial's integral,
    exact by Gauss-Legendre; O(N^2 M) time and memory a row.
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
