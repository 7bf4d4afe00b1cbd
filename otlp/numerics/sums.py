"""Sums over the vocabulary in one pass, without intermediate arrays.

Each block of tokens is summed in vectors, and the sums of the blocks are added one after the other.
A single running sum would round once per token, and for equal tokens always in the same direction.
"""

from __future__ import annotations

from otlp.distribution import FloatArray, Mask
from otlp.numerics.compiled import REASSOCIATE, compiled

BLOCK = 1024
"""Number of tokens summed in vectors."""


@compiled(fastmath=REASSOCIATE)
def total(values: FloatArray) -> float:
    """Return the sum of all values."""
    whole = 0.0
    for begin in range(0, values.size, BLOCK):
        block, part = values[begin : begin + BLOCK], 0.0
        for x in range(block.size):
            part += block[x]
        whole += part
    return whole


@compiled(fastmath=REASSOCIATE)
def sum_in(values: FloatArray, subset: Mask) -> float:
    """Return the sum of the values in a subset."""
    whole = 0.0
    for begin in range(0, values.size, BLOCK):
        block, inside = values[begin : begin + BLOCK], subset[begin : begin + BLOCK]
        part = 0.0
        for x in range(block.size):
            part += block[x] if inside[x] else 0.0
        whole += part
    return whole


@compiled(fastmath=REASSOCIATE)
def l1_distance(one: FloatArray, other: FloatArray) -> float:
    """Return the sum of the absolute differences; NaN if any value is NaN."""
    whole = 0.0
    for begin in range(0, one.size, BLOCK):
        left, right = one[begin : begin + BLOCK], other[begin : begin + BLOCK]
        part = 0.0
        for x in range(left.size):
            part += abs(left[x] - right[x])
        whole += part
    return whole
