"""Nodes of integrals over the time of the n-th arrival in an exponential race.

Divided by t^(n-1) such an integrand is a positive mixture of exp(-m t), for rates m from what is
left after n arrivals up to 1.  So the relative error of Gauss and Laguerre's rule, with
weight t^(n-1) exp(-t), is at most that of the slowest or the fastest rate, the same for both where
time is scaled by the root of the slowest.  Where few arrivals leave little of the rate, that takes
more nodes than the trapezoidal rule in the logarithm of time does.
"""

from __future__ import annotations

from functools import cache
from math import ceil, lgamma, log, sqrt

import numpy as np

from otlp.distribution import FloatArray, frozen
from otlp.numerics.lanes import LANES

PRECISE = 1e-13
"""Relative error of the integral of each exponential."""

BLOCKS = 8
"""Most blocks of Gauss and Laguerre's rule: where it would take more, the other takes fewer."""

FIRST = (-3.5, -3.5, -3.0, -2.5, -1.9, -1.8)
"""First node of the trapezoidal rule by n, and from n = 5 on: no n tokens arrive before it."""


def arrival_times(n: int, slowest: float, unit: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Times and weights, in blocks.

    Parameters
    ----------
    n : int
        The arrival that is waited for, at least 1.
    slowest : float
        Until then tokens arrive at this rate at least; before the first arrival, at rate 1.
    unit : float
        What times and weights are measured in, a power of two: 1 / slowest may overflow.

    Returns
    -------
    times, weights : ndarray, shape (B, LANES)
        The times ascend.

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
    # The error falls about as the power 2 B LANES of this.
    ratio = min(max((1.0 - scale) / (1.0 + scale), 1e-4), 0.99)
    fewest = ceil(0.5 * log(PRECISE) / (LANES * log(ratio)))
    for blocks in range(fewest, min(longest, BLOCKS + 1)):
        times, weights = _laguerre(blocks * LANES, n)
        if all(_error(times, weights, n, m) <= PRECISE for m in (scale, 1.0 / scale)):
            scale *= unit
            return (times / scale).reshape(-1, LANES), (weights / scale).reshape(-1, LANES)
    # In x, where t = exp(x - exp(-x)); the arrival is the sharper in log time the larger n is.
    x = np.linspace(first, first + length, longest * LANES).reshape(-1, LANES)
    root = np.exp(0.5 * (x - np.exp(-x)))
    times = root / unit * root
    return times, (x[0, 1] - x[0, 0]) * times * (1.0 + np.exp(-x))


def _error(times: FloatArray, weights: FloatArray, n: int, rate: float) -> float:
    density = np.exp(n * log(rate) + (n - 1) * np.log(times) - rate * times - lgamma(n))
    return abs(float(weights @ density) - 1.0)


@cache
def _laguerre(count: int, n: int) -> tuple[FloatArray, FloatArray]:
    """Nodes, and weights of the whole integrand: without the rule's, which underflow."""
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
