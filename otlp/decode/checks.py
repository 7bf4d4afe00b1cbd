"""Arguments are of the documented types, or an error says which is not."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.distribution import IntArray, as_array
from otlp.errors import InvalidInputError


def is_a(value: Any, kind: type, what: str) -> None:
    """Refuse a value that is no instance of a class.

    Raises
    ------
    InvalidInputError
        Naming the argument, its value and the class.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{what} is {value!r:.60}: it must be a {kind.__name__}")


def number(value: Any, what: str, least: float, most: float = np.inf) -> float:
    """Check a finite real number in [least, most]."""
    known = isinstance(value, (Real, np.floating)) and not isinstance(value, bool)
    if not known or not _is_finite(value) or not least <= value <= most:
        upper = "" if most == np.inf else f" and at most {most:g}"
        raise InvalidInputError(
            f"{what} is {value!r:.60}: it must be a finite number of at least {least:g}{upper}"
        )
    return float(value)


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def real_array(values: npt.ArrayLike, what: str, axes: int) -> npt.NDArray[np.floating]:
    """Check an array or tensor of real numbers with so many axes."""
    rows = as_array(values, what)
    if rows.ndim != axes or rows.dtype.kind not in "fiu" or not rows.size:
        raise InvalidInputError(
            f"{what} has shape {rows.shape} and type {rows.dtype}: it must hold real numbers "
            f"along {axes} {'axis' if axes == 1 else 'axes'}"
        )
    return rows


def token_ids(values: Any, what: str, size: int) -> IntArray:
    """Check token ids in [0, size), shape (T,), possibly none."""
    tokens = as_array(values, what)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{what} is {values!r:.60}: it must be a list of whole numbers, one for each token"
        )
    odd = tokens[(tokens < 0) | (tokens >= size)] if tokens.size else tokens
    if odd.size:
        raise InvalidInputError(f"{what} holds token {int(odd[0])}: tokens are in [0, {size})")
    return tokens.astype(np.int64)
