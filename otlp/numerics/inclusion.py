"""Probability that a token, or any token of a set, is among n i.i.d. drafts."""

from __future__ import annotations

from math import expm1, log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled

BLOCK = 512
"""Number of tokens processed together, small enough for the fastest cache."""


def inclusion_probability(mass: npt.ArrayLike, n: int) -> Any:
    """Return 1 - (1 - mass)^n, accurate for tiny masses.

    Parameters
    ----------
    mass : array_like of float, any shape
        Draft probability of the token or the set; values above 1, from rounding, count as 1.
    n : int
        Number of drafts.

    Returns
    -------
    ndarray or float, same shape as `mass`
    """
    if isinstance(mass, float):  # many times as fast as an array of one element
        return 1.0 if mass >= 1.0 else -expm1(n * log1p(-mass))
    masses = np.ascontiguousarray(mass, dtype=np.float64)
    return _included(masses.reshape(-1), n).reshape(masses.shape)


@compiled
def _included(mass: FloatArray, n: int) -> FloatArray:
    """Combine two halves of the drafts by a + b (1 - a), in positive terms; O(log n) per token."""
    included, power = np.zeros(mass.size), np.empty(BLOCK)
    for begin in range(0, mass.size, BLOCK):
        given, found = mass[begin : begin + BLOCK], included[begin : begin + BLOCK]
        for x in range(given.size):
            power[x] = min(given[x], 1.0)
        left = n
        while left > 0:
            if left & 1:
                for x in range(given.size):
                    found[x] += power[x] * (1.0 - found[x])
            left >>= 1
            if left > 0:
                for x in range(given.size):
                    power[x] *= 2.0 - power[x]
    return included
