"""Exponential variables as a function of seed, position and token: counter-based noise.

Token i of the row of a key is the finalizer of SplitMix64 (Steele, Lea and Flood 2014, with the
constants of Stafford's variant 13) at the counter key + (i + 1) gamma; a key is the same function
folded over the numbers of the seed and the position.  Its 52 high bits select the midpoint of one
of 2^52 cells of (0, 1).  Minus the logarithm of the midpoint is computed from multiplications,
additions and one division, each correctly rounded.  The results are therefore equal to the bit
wherever float64 arithmetic is: in NumPy, and in PyTorch's own operations on a CPU or a GPU.  A
compiler that fuses operations may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from otlp.checks import whole_number
from otlp.distribution import FloatArray, frozen
from otlp.errors import InvalidInputError

GAMMA = 0x9E3779B97F4A7C15 - 2**64
FIRST, SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
"""Odd constants, as signed 64-bit integers; products wrap."""

MANTISSA, ONE = 2**52 - 1, 1023 << 52
"""Bits of a float64: the mask of the mantissa, and the bits of 1.0."""

LN2, ROOT2 = 0.6931471805599453, 1.4142135623730951
SERIES = tuple(1.0 / odd for odd in range(23, 0, -2))
"""Coefficients of artanh(s) / s in powers of s^2, highest first; the remainder is below 1e-18."""

Seed = int | Sequence[int]


def check_seed(seed: Any) -> tuple[int, ...]:
    """Check a seed, and return its numbers.

    Raises
    ------
    InvalidInputError
        If the seed is not an integer in [0, 2^63) or a nonempty sequence of such integers.
    """
    words = tuple(seed) if isinstance(seed, (list, tuple)) else (seed,)
    for word in words:
        if whole_number(word, "the seed of the noise", 0) >= 2**63:
            raise InvalidInputError(f"the seed of the noise must be below 2^63, got {word}")
    if not words:
        raise InvalidInputError("the seed of the noise is empty: pass at least one integer")
    return tuple(map(int, words))


def row_key(seed: Seed, place: int) -> int:
    """Return the key of the row of noise at a position of a text.

    Parameters
    ----------
    seed : int or sequence of int
        Seed; integers in [0, 2^63).
    place : int
        Position in the text, at least 0.

    Returns
    -------
    int
        Signed 64-bit key.

    Raises
    ------
    InvalidInputError
        If the seed is invalid, or the position is negative.
    """
    return int(row_keys(seed_key(seed), np.array([whole_number(place, "the place", 0)]))[0])


def seed_key(seed: Seed) -> int:
    """Return the signed 64-bit key of a seed, from which `row_keys` computes the keys of rows.

    Raises
    ------
    InvalidInputError
        If the seed is invalid.
    """
    key = np.zeros(1, dtype=np.int64)
    for word in check_seed(seed):
        key = _split_mix(key + (np.array([word]) + 1) * GAMMA)
    return int(key[0])


def row_keys(key: Any, places: Any) -> Any:
    """Return the keys of the rows of noise at positions, from `seed_key`; shapes are broadcast."""
    return _split_mix(key + (places + 1) * GAMMA)


def exponentials(key: Any, tokens: Any) -> Any:
    """Return exponential variables of mean 1 for tokens of a row.

    Parameters
    ----------
    key : int, ndarray or Tensor of int64
        Key from `row_key`; its shape is broadcast with that of `tokens`.
    tokens : ndarray or Tensor of int64
        Token ids, at least 0, of any shape; ``arange(V)`` for all tokens.

    Returns
    -------
    ndarray or Tensor of the broadcast shape, float64
        Values in [1.1e-16, 36.8]; minus their logarithms are standard Gumbel variables.  About 40
        operations per token.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.numerics.exponentials import exponentials, row_key
    >>> row = exponentials(row_key(7, 0), np.arange(1000))
    >>> bool(row[5] == exponentials(row_key(7, 0), np.array([5]))[0]), f"{row.mean():.1f}"
    (True, '1.0')
    """
    float64 = np.float64 if isinstance(tokens, np.ndarray) else tokens.double().dtype
    bits = _split_mix((tokens + 1) * GAMMA + key)
    # A random mantissa gives a number in [1, 2); minus 1, the number is the left end of its cell.
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
    # Adding square * 0.0 converts the exponent to float64 in both libraries.
    return -((exponent + square * 0.0) * LN2 + 2.0 * slope * found)


@lru_cache(maxsize=64)
def noise_row(seed: tuple[int, ...], place: int, size: int) -> FloatArray:
    """Return the first tokens of a row, shape (size,), read-only; cached for draft and target."""
    return frozen(exponentials(row_key(seed, place), np.arange(size)))


def _split_mix(bits: Any) -> Any:
    """Apply the finalizer of SplitMix64 to signed 64-bit integers; right shifts are logical."""
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * FIRST
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * SECOND
    return bits ^ ((bits >> 31) & (2**33 - 1))
