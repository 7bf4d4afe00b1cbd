"""Lanes of SIMD vectors: eight numbers at a time, as tuples that stay in registers.

For kernels `compiled` with `slp=True`.  Loops over eight entries of several arrays would not
vectorise, because the arrays might overlap.  Entries must not be NaN.
"""

from __future__ import annotations

from otlp.distribution import FloatArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled

LANES = 8
"""Number of lanes."""

Lanes = tuple[float, float, float, float, float, float, float, float]


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def load(rows: FloatArray, row: int) -> Lanes:
    """Return a row of an array of shape (m, LANES)."""
    r = rows[row]
    return (r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7])


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def store(rows: FloatArray, row: int, x: Lanes) -> None:
    """Overwrite a row."""
    r = rows[row]
    r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7] = x


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def broadcast(x: float) -> Lanes:
    """Return lanes that all hold the same number."""
    return (x, x, x, x, x, x, x, x)


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def multiply(x: Lanes, y: Lanes) -> Lanes:
    """Return the products x y."""
    return (
        x[0] * y[0], x[1] * y[1], x[2] * y[2], x[3] * y[3],
        x[4] * y[4], x[5] * y[5], x[6] * y[6], x[7] * y[7],
    )  # fmt: skip


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def multiply_add(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """Return x y + z."""
    return (
        x[0] * y[0] + z[0], x[1] * y[1] + z[1], x[2] * y[2] + z[2], x[3] * y[3] + z[3],
        x[4] * y[4] + z[4], x[5] * y[5] + z[5], x[6] * y[6] + z[6], x[7] * y[7] + z[7],
    )  # fmt: skip


@compiled(forceinline=True, fastmath=WITHOUT_NAN)
def sum_lanes(x: Lanes) -> float:
    """Return the sum of the lanes."""
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]))
