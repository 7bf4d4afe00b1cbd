"""Sums over the vocabulary in one pass, without an array in between."""

from __future__ import annotations

from otlp.distribution import FloatArray, Mask
from otlp.numerics.compiled import REASSOCIATE, compiled


@compiled(fastmath=REASSOCIATE)
def sum_in(values: FloatArray, subset: Mask) -> float:
    """Sum of the values in a subset, in many partial sums, which round less than one."""
    total = 0.0
    for x in range(values.size):
        total += values[x] if subset[x] else 0.0
    return total


@compiled(fastmath=REASSOCIATE)
def l1_distance(one: FloatArray, other: FloatArray) -> float:
    """Sum of the absolute differences; not a number where one is not."""
    total = 0.0
    for x in range(one.size):
        total += abs(one[x] - other[x])
    return total
