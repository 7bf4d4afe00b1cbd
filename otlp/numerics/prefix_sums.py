"""Prefix sums whose rounding errors do not grow with the length."""

from __future__ import annotations

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled

BLOCK = 64
"""Number of terms after which a prefix sum is corrected by its rounding error."""


@compiled
def accumulate(values: FloatArray) -> None:
    """Replace values by their prefix sums, each accurate to a few units in the last place.

    The prefix sum of a block starts from the rounding error of the sum before the block, so errors
    do not grow with the length, and the sums of nonnegative values ascend.
    """
    base, local = 0.0, 0.0
    for k in range(values.size):
        local += values[k]
        total = base + local
        values[k] = total
        if k % BLOCK == BLOCK - 1:
            local -= total - base
            base = total
