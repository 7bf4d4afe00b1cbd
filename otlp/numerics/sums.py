"""Sums over the vocabulary in one pass, without an array in between."""

from __future__ import annotations

from otlp.distribution import FloatArray, Mask
from otlp.numerics.compiled import REASSOCIATE, compiled


@compiled(fastmath=REASSOCIATE)
def total(values: FloatArray) -> float:
    """Sum of all values, in many partial sums, which round less than one."""
    whole = 0.0
    for value in values:
        whole += value
    return whole


@compiled(fastmath=REASSOCIATE)
def sum_in(values: FloatArray, subset: Mask) -> float:
    """Sum of the values in a subset."""
    whole = 0.0
    for x in range(values.size):
        whole += values[x] if subset[x] else 0.0
    return whole


@compiled(fastmath=REASSOCIATE)
def l1_distance(one: FloatArray, other: FloatArray) -> float:
    """Sum of the absolute differences; not a number where one is not."""
    whole = 0.0
    for x in range(one.size):
        whole += abs(one[x] - other[x])
    return whole
