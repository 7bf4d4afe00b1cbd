"""Positive part of a difference of distributions, (w p - s q)^+, and its sum, in one pass."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled


@compiled(fastmath=WITHOUT_NAN)
def positive_part(
    weight: float, p: FloatArray, scale: float, q: FloatArray
) -> tuple[FloatArray, float]:
    """Return the positive part of a difference, and its sum.

    Parameters
    ----------
    weight, scale : float
        Factors w and s.
    p, q : ndarray, shape (V,)

    Returns
    -------
    left : ndarray, shape (V,)
        (w p - s q)^+.
    total : float
    """
    left = np.empty(p.size)
    total = 0.0
    for x in range(p.size):
        rest = max(weight * p[x] - scale * q[x], 0.0)
        left[x] = rest
        total += rest
    return left, total
