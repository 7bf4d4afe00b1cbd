"""Two-slice rule at one node: the masses that its tokens want, clipped to the means of two slices.

Token x of the draft q wants the mass t p_x.  A slice of mean `low` gives it low q_x, a slice of
mean `high` gives it high q_x, and shares of both give any mass in between.  Every function here is
one pass over the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled


class Clipped(NamedTuple):
    """Mass that a node passes on under two slices, and its derivatives in their means.

    Attributes
    ----------
    excess : float
        Sum of w p clipped to [low q, high q], minus the sum of q.
    beneath, beyond : float
        Draft mass of the tokens clipped to low q, and of those clipped to high q.
    """

    excess: float
    beneath: float
    beyond: float


@compiled(fastmath=WITHOUT_NAN)
def clipped(weight: float, p: FloatArray, q: FloatArray, low: float, high: float) -> Clipped:
    """Clip the wanted masses of the tokens to the masses that the slices can give."""
    excess = beneath = beyond = 0.0
    for x in range(q.size):
        t, least, most = weight * p[x], low * q[x], high * q[x]
        excess += min(max(t, least), most) - q[x]
        beneath += q[x] if t < least else 0.0
        beyond += q[x] if t > most else 0.0
    return Clipped(excess, beneath, beyond)


@compiled(fastmath=WITHOUT_NAN)
def clipped_from_below(weight: float, p: FloatArray, q: FloatArray, low: float) -> float:
    """Return the mass beyond w p that the mean of the lower slice forces upon tokens."""
    total = 0.0
    for x in range(q.size):
        total += max(low * q[x] - weight * p[x], 0.0)
    return total


@compiled
def wanted_ratios(weight: float, p: FloatArray, q: FloatArray) -> tuple[float, float]:
    """Return the least and the largest w p / q of the tokens that can be drafted."""
    least, most = np.inf, 0.0
    for x in range(p.size):
        if q[x] > 0.0:
            wanted = weight * p[x] / q[x]
            least = min(least, wanted)
            most = max(most, wanted)
    return least, most


@compiled(fastmath=WITHOUT_NAN)
def balance(
    weight: float, p: FloatArray, q: FloatArray, below: float, above: float, low: float, high: float
) -> tuple[float, float]:
    """Return factors of the upper and the lower shares; both are at most 1, and one of them is 1.

    With these factors the mixture of the children is exactly the parent: sum q lambda = below.
    """
    upper = lower = 0.0
    gap = high - low
    for x in range(q.size):
        t = weight * p[x]
        upper += min(max(t - low * q[x], 0.0), gap * q[x])
        lower += min(max(high * q[x] - t, 0.0), gap * q[x])
    scale = (upper + lower) / (below + above)
    if upper > above * scale:
        return above * scale / upper, 1.0
    return 1.0, (min(1.0, below * scale / lower) if lower > 0.0 else 1.0)


@compiled
def shares(
    t: float, q: float, low: float, high: float, up: float, down: float
) -> tuple[float, float]:
    """Return the shares lambda of the lower and 1 - lambda of the upper slice, after balancing."""
    wanted = t / q
    if down < 1.0:
        lower = down * min(max((high - wanted) / (high - low), 0.0), 1.0)
        return lower, 1.0 - lower
    upper = up * min(max((wanted - low) / (high - low), 0.0), 1.0)
    return 1.0 - upper, upper


@compiled(fastmath=WITHOUT_NAN)
def skewed(
    weight: float, p: FloatArray, q: FloatArray, low: float, high: float, up: float, down: float
) -> FloatArray:
    """Return the distribution q r of all tokens, where r is the mean of the slices they share."""
    found = np.empty(q.size)
    gap = high - low
    for x in range(q.size):
        t = weight * p[x]
        if down < 1.0:
            found[x] = high * q[x] - down * min(max(high * q[x] - t, 0.0), gap * q[x])
        else:
            found[x] = low * q[x] + up * min(max(t - low * q[x], 0.0), gap * q[x])
    return found
