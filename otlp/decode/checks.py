"""Arguments are of the documented types, or an error says which is not."""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.errors import InvalidInputError

__all__ = ["is_a", "number", "real_array", "token_ids", "whole"]


def is_a(value: Any, kind: type, what: str) -> None:
    """Refuse a value that is no instance of a class.

    Raises
    ------
    InvalidInputError
        Naming the argument, its value and the class.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{what} is {_short(value)}: it must be a {kind.__name__}")


def number(value: Any, what: str, least: float, most: float = np.inf) -> float:
    """Check a finite real number in [least, most]."""
    known = isinstance(value, (Real, np.floating)) and not isinstance(value, bool)
    if not known or not _is_finite(value) or not least <= value <= most:
        upper = "" if most == np.inf else f" and at most {most:g}"
        lower = "" if least == -np.inf else f" and at least {least:g}"
        raise InvalidInputError(
            f"{what} is {_short(value)}: it must be a finite number{lower}{upper}"
        )
    return float(value)


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def whole(value: Any, what: str, least: int = 1) -> int:
    """Check a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(
            f"{what} is {_short(value)}: it must be a whole number of at least {least}"
        )
    return int(value)


def real_array(values: npt.ArrayLike, what: str, axes: int) -> npt.NDArray[np.floating]:
    """Check an array of real numbers with so many axes."""
    try:
        rows = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} is no array: {error}") from None
    if rows.ndim != axes or rows.dtype.kind not in "fiu" or not rows.size:
        raise InvalidInputError(
            f"{what} has shape {rows.shape} and type {rows.dtype}: it must hold real numbers "
            f"along {axes} {'axis' if axes == 1 else 'axes'}"
        )
    return rows


def token_ids(values: Any, what: str, size: int) -> npt.NDArray[np.int64]:
    """Check token ids in [0, size), shape (T,), possibly none."""
    try:
        tokens = np.asarray(values)
    except (TypeError, ValueError):
        tokens = np.asarray(None)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{what} is {_short(values)}: it must be a list of whole numbers, one for each token"
        )
    odd = tokens[(tokens < 0) | (tokens >= size)] if tokens.size else tokens
    if odd.size:
        raise InvalidInputError(f"{what} holds token {int(odd[0])}: tokens are in [0, {size})")
    return tokens.astype(np.int64)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
