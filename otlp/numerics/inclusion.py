"""The probability that a token, or any of a set of tokens, is among n i.i.d. drafts."""

from __future__ import annotations

from math import expm1, log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled

BLOCK = 512
"""Tokens whose drafts are doubled together: few enough for the fastest memory."""


def inclusion_probability(mass: npt.ArrayLike, n: int) -> Any:
    """1 - (1 - mass)^n, accurate for tiny masses.

    Parameters
    ----------
    mass : array_like of float, any shape
        Draft probability of the token or of the set; above 1 by rounding counts as 1.
    n : int
        Number of drafts.

    Returns
    -------
    ndarray or float, the shape of `mass`
    """
    if isinstance(mass, float):  # a set's: many times as fast as an array of one
        return 1.0 if mass >= 1.0 else -expm1(n * log1p(-mass))
    masses = np.ascontiguousarray(mass, dtype=np.float64)
    return _included(masses.reshape(-1), n).reshape(masses.shape)


@compiled
def _included(mass: FloatArray, n: int) -> FloatArray:
    """By a + b - a b for the drafts of two halves, a sum of positive terms; O(log n) a token."""
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
            for x in range(given.size):
                power[x] *= 2.0 - power[x]
            left >>= 1
    return included
