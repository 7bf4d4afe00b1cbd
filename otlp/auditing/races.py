"""Exponential races: numbers that are increasing or decreasing functions of waiting times.

A waiting time T is exponential.  The first of two with rates r and s is one of rate r + s, and
comes from the first with probability r / (r + s), independently of when; so the outcome of
``argmax(p / E)``, ``argmin(E / p)`` or ``argmax(logits + gumbel)`` branches without integrals, one
comparison after the other (Gumbel's and Efraimidis and Spirakis' races).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Clock:
    """What a number says of a waiting time T = scale E, for E exponential.

    The number is factor T, factor / T (with a factor of 1 or -1), or factor log T.
    """

    kind: Literal["time", "inverse", "log"] = "time"
    factor: float = 1.0
    scale: float = 1.0

    @property
    def runs_forward(self) -> bool:
        """Whether a later time makes the number larger."""
        return (self.factor > 0.0) != (self.kind == "inverse")

    def alike(self, other: Clock) -> bool:
        """Whether the larger of two such numbers tells which time is later."""
        return (self.kind, self.factor) == (other.kind, other.factor)

    def times(self, c: float) -> Clock:
        """The number times c, which is not 0."""
        if self.kind == "log":
            return replace(self, factor=self.factor * c)
        size = abs(c) if self.kind == "time" else 1.0 / abs(c)
        return replace(self, factor=self.factor * math.copysign(1.0, c), scale=self.scale * size)

    def plus(self, c: float) -> Clock | None:
        """The number plus c."""
        if c == 0.0:
            return self
        if self.kind != "log" or abs(c / self.factor) > 700.0:
            return None
        return replace(self, scale=self.scale * math.exp(c / self.factor))

    def divides(self, c: float) -> Clock | None:
        """C, which is not 0, divided by the number."""
        if self.kind == "log":
            return None
        other: Literal["time", "inverse"] = "inverse" if self.kind == "time" else "time"
        return replace(self, kind=other).times(c)

    def log(self) -> Clock | None:
        """The logarithm of the number."""
        if self.kind == "log" or self.factor < 0.0:
            return None
        return replace(self, kind="log", factor=1.0 if self.kind == "time" else -1.0)

    def exp(self) -> Clock | None:
        """The exponential of the number."""
        if self.kind != "log" or abs(self.factor) != 1.0:
            return None
        return replace(self, kind="time" if self.factor > 0.0 else "inverse", factor=1.0)
