"""Sorting order of many numbers, from a sort of their bits as integers.

The low bits of each double are replaced by its index, so that one plain sort, which is vectorised,
also yields the order.  Numbers that differ only in the low bits are put in order afterwards by
insertion or, if there are many of them, by two sorts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled

FEW = 256
"""Number of values up to which NumPy's sort is faster."""

LARGEST = 2**63 - 1
"""Largest int64: all bits but the sign."""


def ascending(values: FloatArray | npt.NDArray[np.float32]) -> IntArray:
    """Return the stable sorting order of numbers, infinities included, without NaN.

    Parameters
    ----------
    values : ndarray, shape (m,), float64 or float32

    Returns
    -------
    ndarray, shape (m,), int64
        Same as ``np.argsort(values, kind="stable")``, and faster for many numbers.
    """
    if values.size <= FEW:
        return np.argsort(values, kind="stable")
    # Adding zero removes the sign of minus zero.
    keys = (values.astype(np.float64) + 0.0).view(np.int64)
    keys ^= (keys >> 63) & LARGEST  # The bits of negative floats sort in reverse.
    packed = _pack(keys)
    packed.sort()
    return packed if _unpack(packed, keys) else _by_halves(keys)


def by_ratio(target: FloatArray, draft: FloatArray) -> IntArray:
    """Return all tokens by p/q descending, tokens with q = 0 first; one sort."""
    ratio = np.full(target.size, np.inf)
    # Scale by a power of two: no ratio overflows, and ratios to subnormal q stay distinct.
    with np.errstate(under="ignore"):
        np.divide(target, draft * 2.0**60, out=ratio, where=draft > 0.0)
    return ascending(ratio)[::-1].copy()


@compiled
def _pack(keys: IntArray) -> IntArray:
    """Replace the low bits of each key by its index."""
    mask = low_bits(keys.size)
    packed = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        packed[i] = (keys[i] & ~mask) | i
    return packed


@compiled
def _unpack(packed: IntArray, keys: IntArray) -> bool:
    """Turn sorted packed keys into the order; return False if too many are out of order."""
    mask = low_bits(keys.size)
    moves = 0
    for k in range(keys.size):
        place = packed[k] & mask
        at = k
        while at > 0 and keys[packed[at - 1]] > keys[place] and moves < keys.size:
            packed[at] = packed[at - 1]
            at -= 1
            moves += 1
        packed[at] = place
    return moves < keys.size


def _by_halves(keys: IntArray) -> IntArray:
    """Sort by the low bits, then by the other bits; for many keys that differ in low bits only."""
    mask = low_bits(keys.size)
    places = np.arange(keys.size)
    packed = ((keys & mask) << mask.bit_length()) | places
    packed.sort()
    first = packed & mask
    packed = (keys[first] & ~mask) | places
    packed.sort()
    order: IntArray = first[packed & mask]
    return order


@compiled(inline="always")
def low_bits(size: int) -> int:
    """Return a mask of the bits that hold any index below `size`."""
    mask = 1
    while mask < size:
        mask *= 2
    return mask - 1
