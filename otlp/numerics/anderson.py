"""Anderson acceleration of a fixed-point iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otlp.distribution import FloatArray

HISTORY = 3
"""Number of iterates to combine."""


def accelerated(
    iterates: Sequence[FloatArray],
    residuals: Sequence[FloatArray],
    metric: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the next iterate: the best combination of the last iterates, plus its residual.

    Parameters
    ----------
    iterates : sequence of ndarray, each of shape (m,)
        The iterates, the newest last.
    residuals : sequence of ndarray, each of shape (m,)
        The residual of each iterate: its image minus the iterate.
    metric : ndarray, shape (m,), or float
        Weight of each coordinate in the sum of squares that the combination minimises.

    Notes
    -----
    D. G. Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12 (1965).
    """
    last = iterates[-1] + residuals[-1]
    if len(iterates) == 1:
        return last
    changes = np.diff(residuals, axis=0)
    weighted = changes * metric
    parts = np.linalg.lstsq(weighted @ changes.T, weighted @ residuals[-1], rcond=None)[0]
    found: FloatArray = last - parts @ (np.diff(iterates, axis=0) + changes)
    return found
