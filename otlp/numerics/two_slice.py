"""The two-slice rule at one node: what its tokens ask for, clipped to the means of two slices.

Token x of the draft q wants the mass t p_x; a slice of mean `low` gives it low q_x, one of mean
`high` gives high q_x, and shares of both give what lies between.  Every function here is one pass
over the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled


class Clipped(NamedTuple):
    """What a node passes on under two slices, and how that moves with their means.

    Attributes
    ----------
    excess : float
        Sum of w p clipped to [low q, high q], beyond that of q.
    beneath, beyond : float
        Draft mass of the tokens that are clipped to low q, and to high q.
    """

    excess: float
    beneath: float
    beyond: float


@compiled(fastmath=WITHOUT_NAN)
def clipped(weight: float, p: FloatArray, q: FloatArray, low: float, high: float) -> Clipped:
    """Clip what the tokens want to what the slices can give."""
    excess = beneath = beyond = 0.0
    for x in range(q.size):
        t, least, most = weight * p[x], low * q[x], high * q[x]
        excess += min(max(t, least), most) - q[x]
        beneath += q[x] if t < least else 0.0
        beyond += q[x] if t > most else 0.0
    return Clipped(excess, beneath, beyond)


@compiled(fastmath=WITHOUT_NAN)
def clipped_from_below(weight: float, p: FloatArray, q: FloatArray, low: float) -> float:
    """Mass that the lower slice's mean forces upon tokens beyond w p."""
    total = 0.0
    for x in range(q.size):
        total += max(low * q[x] - weight * p[x], 0.0)
    return total


@compiled
def wanted_ratios(weight: float, p: FloatArray, q: FloatArray) -> tuple[float, float]:
    """Least and largest w p / q of the tokens that can be drafted."""
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
    """Factors of the upper shares and of the lower ones; both at most 1, one of them 1.

    They make the children's laws mix to the parent's exactly: sum q lambda = below.
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
    """Shares lambda of the lower slice and 1 - lambda of the upper one, after balancing."""
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
    """Distribution q r at all tokens, r the mean of the slices under the shares."""
    found = np.empty(q.size)
    gap = high - low
    for x in range(q.size):
        t = weight * p[x]
        if down < 1.0:
            found[x] = high * q[x] - down * min(max(high * q[x] - t, 0.0), gap * q[x])
        else:
            found[x] = low * q[x] + up * min(max(t - low * q[x], 0.0), gap * q[x])
    return found
