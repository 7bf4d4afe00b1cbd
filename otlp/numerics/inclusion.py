"""The probability that a token, or any of a set of tokens, is among n i.i.d. drafts."""

from __future__ import annotations

from math import expm1, log1p
from typing import Any

import numpy as np
import numpy.typing as npt


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
    with np.errstate(divide="ignore"):  # the logarithm of a miss that cannot happen
        return -np.expm1(n * np.log1p(-np.minimum(mass, 1.0)))
