"""The order of many positive numbers, by sorting their bits as whole numbers.

The low bits of a double make room for its place, so that one plain sort, which the processor does
in vectors, brings the order along; what these bits had told apart is put right after.  Where that
is much, and for single precision, a radix sort takes time proportional to the numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled

BITS = 11
"""Bits of a digit: its counters stay in the fastest cache."""

COMPARISON_SORT_UP_TO = 1_000
"""Up to so many numbers a comparison sort is faster."""


def ascending(values: FloatArray | npt.NDArray[np.float32]) -> IntArray:
    """Stable order of numbers that are not negative, infinity included.

    Parameters
    ----------
    values : ndarray, shape (m,), float64 or float32
        The latter take half the time.

    Returns
    -------
    ndarray, shape (m,), int64
        As ``np.argsort(values, kind="stable")``.
    """
    if values.size <= COMPARISON_SORT_UP_TO:
        return np.argsort(values, kind="stable").astype(np.int64)
    # The bits of such floats are in the order of the floats, but for minus zero.
    keys = (values + values.dtype.type(0.0)).view(f"i{values.itemsize}")
    if values.itemsize == 8:
        packed = _pack(keys)
        packed.sort()
        if _unpack(packed, keys):
            return packed
    return _sort(keys, np.empty_like(keys)).astype(np.int64)


def by_ratio(target: FloatArray, draft: FloatArray) -> IntArray:
    """All tokens by p/q descending; those with q = 0 first; one sort."""
    ratio = np.full(target.size, np.inf)
    # times a power of two, so that no ratio overflows: those to subnormal q are told apart too
    np.divide(target, draft * 2.0**60, out=ratio, where=draft > 0.0)
    return ascending(ratio)[::-1].copy()


@compiled
def _pack(keys: IntArray) -> IntArray:
    """Each key with its place in the low bits."""
    mask = low_bits(keys.size)
    packed = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        packed[i] = (keys[i] & ~mask) | i
    return packed


@compiled
def _unpack(packed: IntArray, keys: IntArray) -> bool:
    """Turn sorted packed keys into the order; False if too much is out of place."""
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


@compiled
def low_bits(size: int) -> int:
    """The bits that hold any place below `size`."""
    mask = 1
    while mask < size:
        mask *= 2
    return mask - 1


@compiled
def _sort(keys: IntArray, moved: IntArray) -> npt.NDArray[np.int32]:
    """Sort by the least digit first; `keys` is overwritten."""
    size, radix, digits = keys.size, 1 << BITS, 8 * keys.itemsize // BITS + 1
    counts = np.zeros((digits, radix), np.int32)
    for i in range(size):
        key = keys[i]
        for digit in range(digits):
            counts[digit, (key >> (digit * BITS)) & (radix - 1)] += 1
    order, other = np.arange(size).astype(np.int32), np.empty(size, np.int32)
    for digit in range(digits):
        count = counts[digit]
        if count.max() == size:
            continue
        total = 0
        for d in range(radix):
            own = count[d]
            count[d] = total
            total += own
        shift = digit * BITS
        for i in range(size):
            key = keys[i]
            d = (key >> shift) & (radix - 1)
            at = count[d]
            count[d] = at + 1
            moved[at] = key
            other[at] = order[i]
        keys, moved = moved, keys
        order, other = other, order
    return order
