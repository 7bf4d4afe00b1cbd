"""The order of many positive numbers, by sorting their bits as whole numbers.

The low bits of a double make room for its place, so that one plain sort, which the processor does
in vectors, brings the order along; what these bits had told apart is put right after, or by a sort
of its own where that is much.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled


def ascending(values: FloatArray | npt.NDArray[np.float32]) -> IntArray:
    """Stable order of numbers that are not negative, infinity included.

    Parameters
    ----------
    values : ndarray, shape (m,), float64 or float32

    Returns
    -------
    ndarray, shape (m,), int64
        As ``np.argsort(values, kind="stable")``, in a fifth of its time.
    """
    # The bits of such floats are in the order of the floats, but for minus zero.
    keys = (values.astype(np.float64) + 0.0).view(np.int64)
    packed = _pack(keys)
    packed.sort()
    return packed if _unpack(packed, keys) else _by_halves(keys)


def by_ratio(target: FloatArray, draft: FloatArray) -> IntArray:
    """All tokens by p/q descending; those with q = 0 first; one sort."""
    ratio = np.full(target.size, np.inf)
    # times a power of two, so that no ratio overflows: those to subnormal q are told apart too
    with np.errstate(under="ignore"):
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


def _by_halves(keys: IntArray) -> IntArray:
    """The order where many differ in the low bits alone: by these first, then by the others."""
    mask = low_bits(keys.size)
    places = np.arange(keys.size)
    packed = ((keys & mask) << mask.bit_length()) | places
    packed.sort()
    first = packed & mask
    packed = (keys[first] & ~mask) | places
    packed.sort()
    order: IntArray = first[packed & mask]
    return order


@compiled
def low_bits(size: int) -> int:
    """The bits that hold any place below `size`."""
    mask = 1
    while mask < size:
        mask *= 2
    return mask - 1
