"""Slope (b^n - a^n) / (b - a) of the n-th power between two masses, without cancellation.

The slope is the sum of a^i b^(n-1-i) over i < n, and the mean of n u^(n-1) over [a, b]: the
probability that a score uniform on [a, b] is the best of n, if the others are uniform on [0, 1].
"""

from __future__ import annotations

from otlp.numerics.compiled import compiled


@compiled
def power_slope(a: float, b: float, n: int) -> float:
    """Return the slope between two masses 0 <= a <= b; n b^(n-1) if they are equal.  O(log n).

    The number of terms is doubled for each bit of n: S_2m = S_m (a^m + b^m) and
    S_(m+1) = b S_m + a^m.  All terms are positive.
    """
    top = 1
    while top <= n // 2:  # 2 * top might overflow
        top *= 2
    a_power, b_power, slope = a, b, 1.0
    bit = top // 2
    while bit > 0:
        slope *= a_power + b_power
        a_power *= a_power
        b_power *= b_power
        if n & bit:
            slope = slope * b + a_power
            a_power *= a
            b_power *= b
        bit //= 2
    return slope
