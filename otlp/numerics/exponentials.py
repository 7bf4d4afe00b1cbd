"""Exponential variables that are a function of seed, place and token: counter-based noise.

Token i of the row of a key is the finalizer of SplitMix64 (Steele, Lea and Flood 2014, with the
constants of Stafford's variant 13) at the counter key + (i + 1) gamma; a key is the same function
folded over the seed's numbers and the place.  Its 52 high bits are the middle of one of 2^52 cells
of (0, 1), and minus the logarithm of that is worked out in multiplications, additions and one
division, each correctly rounded.  So numbers are equal to the bit wherever float64 is: in NumPy,
and in PyTorch's own operations on a CPU or a GPU.  A compiler that fuses them may differ in the
last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from otlp.checks import FloatArray, whole_number
from otlp.errors import InvalidInputError

GAMMA = 0x9E3779B97F4A7C15 - 2**64
FIRST, SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
"""Odd constants, as signed numbers of 64 bits: products wrap."""

MANTISSA, ONE = 2**52 - 1, 1023 << 52
"""Bits of a float64: those behind the point, and all of 1.0."""

LN2, ROOT2 = 0.6931471805599453, 1.4142135623730951
SERIES = tuple(1.0 / odd for odd in range(23, 0, -2))
"""Of artanh(s) / s in s^2, the last coefficient first; beyond it stands less than 1e-18."""

Seed = int | Sequence[int]


def check_seed(seed: Any) -> tuple[int, ...]:
    """Hand the numbers of a seed back.

    Raises
    ------
    InvalidInputError
        If it is no whole number in [0, 2^63), nor a sequence of at least one.
    """
    words = tuple(seed) if isinstance(seed, (list, tuple)) else (seed,)
    for word in words:
        if whole_number(word, "the seed of the noise", 0) >= 2**63:
            raise InvalidInputError(f"the seed of the noise is {word}: it must be below 2^63")
    if not words:
        raise InvalidInputError("the seed of the noise is empty: give at least one whole number")
    return tuple(map(int, words))


def row_key(seed: Seed, place: int) -> int:
    """Key of the row of noise at a place of a text.

    Parameters
    ----------
    seed : int or sequence of int
        In [0, 2^63).
    place : int
        At least 0.

    Returns
    -------
    int
        Of 64 bits, signed.

    Raises
    ------
    InvalidInputError
        If the seed is none, or the place negative.
    """
    return int(row_keys(seed_key(seed), np.array([whole_number(place, "the place", 0)]))[0])


def seed_key(seed: Seed) -> int:
    """What `row_keys` makes the keys of a text's rows from: of 64 bits, signed.

    Raises
    ------
    InvalidInputError
        If the seed is none.
    """
    key = np.zeros(1, dtype=np.int64)
    for word in check_seed(seed):
        key = _mixed(key + (np.array([word]) + 1) * GAMMA)
    return int(key[0])


def row_keys(key: Any, places: Any) -> Any:
    """Keys of the rows of noise at some places, from `seed_key`; of shapes that go together."""
    return _mixed(key + (places + 1) * GAMMA)


def exponentials(key: Any, tokens: Any) -> Any:
    """Exponential variables of mean 1 for some tokens of a row.

    Parameters
    ----------
    key : int, ndarray or Tensor of int64
        See `row_key`; of a shape that goes with the tokens'.
    tokens : ndarray or Tensor of int64
        Token ids, at least 0, of any shape: ``arange(V)`` for all.

    Returns
    -------
    ndarray or Tensor of their shape, float64
        In [1.1e-16, 36.8]; minus their logarithms are standard Gumbel variables.  About 40
        operations a token.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.numerics.exponentials import exponentials, row_key
    >>> row = exponentials(row_key(7, 0), np.arange(1000))
    >>> bool(row[5] == exponentials(row_key(7, 0), np.array([5]))[0]), f"{row.mean():.1f}"
    (True, '1.0')
    """
    float64 = np.float64 if isinstance(tokens, np.ndarray) else tokens.double().dtype
    bits = _mixed((tokens + 1) * GAMMA + key)
    # m in [1, 2) with random digits; less 1 it is the left end of its cell
    uniform = (((bits >> 12) & MANTISSA) | ONE).view(float64) - 1.0 + 2.0**-53
    bits = uniform.view(tokens.dtype)
    exponent = (bits >> 52) - 1023
    scaled = ((bits & MANTISSA) | ONE).view(float64)
    above = scaled > ROOT2
    exponent = exponent + above
    scaled = scaled * (1.0 - 0.5 * above)
    slope = (scaled - 1.0) / (scaled + 1.0)
    square = slope * slope
    found = square * 0.0
    for coefficient in SERIES:
        found = found * square + coefficient
    # exponent as float64 in both libraries
    return -((exponent + square * 0.0) * LN2 + 2.0 * slope * found)


@lru_cache(maxsize=64)
def noise_row(seed: tuple[int, ...], place: int, size: int) -> FloatArray:
    """The first tokens of a row, shape (size,), read-only; draft and target ask for the same."""
    found: FloatArray = exponentials(row_key(seed, place), np.arange(size))
    found.setflags(write=False)
    return found


def _mixed(bits: Any) -> Any:
    """The finalizer, on arrays of signed 64 bits; right shifts are logical."""
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * FIRST
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * SECOND
    return bits ^ ((bits >> 31) & (2**33 - 1))
