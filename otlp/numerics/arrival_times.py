"""Quadrature nodes for integrals over the time of the n-th arrival in an exponential race.

Divided by t^(n-1), the integrand is a positive mixture of exp(-m t), where the rates m range from
the rate left after n arrivals up to 1.  The relative error of the Gauss-Laguerre rule with weight
t^(n-1) exp(-t) is therefore at most its error for the slowest or the fastest rate; the two are
equal if time is scaled by the square root of the slowest rate.  If few arrivals leave little of
the rate, this rule needs more nodes than the trapezoidal rule in the logarithm of time.
"""

from __future__ import annotations

from functools import cache
from math import ceil, lgamma, log, sqrt

import numpy as np

from otlp.distribution import FloatArray, frozen
from otlp.numerics.lanes import LANES

PRECISE = 1e-13
"""Maximum relative error of the integral of each exponential."""

BLOCKS = 8
"""Maximum number of Gauss-Laguerre blocks; above it the trapezoidal rule needs fewer nodes."""

FIRST = (-3.5, -3.5, -3.0, -2.5, -1.9, -1.8)
"""First node of the trapezoidal rule for n = 0, ..., 4 and n >= 5; no n tokens arrive before it."""


def arrival_times(n: int, slowest: float, unit: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return quadrature times and weights, in blocks.

    Parameters
    ----------
    n : int
        Index of the arrival, at least 1.
    slowest : float
        Least total rate of arrivals before the n-th arrival; before the first, the rate is 1.
    unit : float
        Unit of times and weights, a power of two; without it 1 / slowest may overflow.

    Returns
    -------
    times, weights : ndarray, shape (B, LANES)
        The times are in ascending order.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.numerics.arrival_times import arrival_times
    >>> times, weights = arrival_times(3, 0.5)
    >>> times.shape, float(round((weights * times**2 * np.exp(-0.7 * times)).sum() * 0.7**3, 12))
    ((2, 8), 2.0)
    """
    first = FIRST[min(n, len(FIRST) - 1)]
    length = log(38.0 + n + 9.0 * sqrt(n)) - log(slowest) - first
    longest = ceil(length / (LANES * min(0.22, 0.5 / sqrt(n))))
    scale = sqrt(slowest)
    # The error decreases approximately as the power 2 B LANES of this ratio.
    ratio = min(max((1.0 - scale) / (1.0 + scale), 1e-4), 0.99)
    fewest = ceil(0.5 * log(PRECISE) / (LANES * log(ratio)))
    for blocks in range(fewest, min(longest, BLOCKS + 1)):
        times, weights = _laguerre(blocks * LANES, n)
        if all(_error(times, weights, n, m) <= PRECISE for m in (scale, 1.0 / scale)):
            scale *= unit
            return (times / scale).reshape(-1, LANES), (weights / scale).reshape(-1, LANES)
    # Trapezoidal rule in x, t = exp(x - exp(-x)).  The density in log time narrows as n increases.
    x = np.linspace(first, first + length, longest * LANES).reshape(-1, LANES)
    root = np.exp(0.5 * (x - np.exp(-x)))
    times = root / unit * root
    return times, (x[0, 1] - x[0, 0]) * times * (1.0 + np.exp(-x))


def _error(times: FloatArray, weights: FloatArray, n: int, rate: float) -> float:
    density = np.exp(n * log(rate) + (n - 1) * np.log(times) - rate * times - lgamma(n))
    return abs(float(weights @ density) - 1.0)


@cache
def _laguerre(count: int, n: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes, and weights that multiply the whole integrand; the usual weights underflow."""
    steps = np.arange(count)
    beside = np.sqrt(steps * (steps + n - 1.0))
    middle = 2.0 * steps + n
    matrix = np.diag(middle) + np.diag(beside[1:], 1) + np.diag(beside[1:], -1)
    times = np.linalg.eigvalsh(matrix)
    before, here = np.zeros(count), np.exp(0.5 * ((n - 1) * np.log(times) - times - lgamma(n)))
    total = here**2
    for k in range(count - 1):
        before, here = here, ((times - middle[k]) * here - beside[k] * before) / beside[k + 1]
        total += here**2
    return frozen(times), frozen(1.0 / total)
