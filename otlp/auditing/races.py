"""Exponential races: monotone functions of exponential waiting times.

The minimum of two waiting times of rates r and s has rate r + s.  The minimum is the first waiting
time with probability r / (r + s), independently of its value.  The comparisons in
``argmax(p / E)``, ``argmin(E / p)`` or ``argmax(logits + gumbel)`` therefore branch one after the
other, without integrals (Gumbel; Efraimidis and Spirakis).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Clock:
    """A number as a function of a waiting time T = scale E, with E exponential.

    The number is factor T, factor / T (with a factor of 1 or -1), or factor log T.
    """

    kind: Literal["time", "inverse", "log"] = "time"
    factor: float = 1.0
    scale: float = 1.0

    @property
    def increasing(self) -> bool:
        """Whether the number increases with the waiting time."""
        return (self.factor > 0.0) != (self.kind == "inverse")

    def comparable(self, other: Clock) -> bool:
        """Whether comparing the two numbers compares their waiting times."""
        return (self.kind, self.factor) == (other.kind, other.factor)

    def times(self, c: float) -> Clock:
        """Return the clock of the number times c, c != 0."""
        if self.kind == "log":
            return replace(self, factor=self.factor * c)
        size = abs(c) if self.kind == "time" else 1.0 / abs(c)
        return replace(self, factor=self.factor * math.copysign(1.0, c), scale=self.scale * size)

    def plus(self, c: float) -> Clock | None:
        """Return the clock of the number plus c; None if there is none."""
        if c == 0.0:
            return self
        if self.kind != "log" or abs(c / self.factor) > 700.0:
            return None
        return replace(self, scale=self.scale * math.exp(c / self.factor))

    def divides(self, c: float) -> Clock | None:
        """Return the clock of c divided by the number, c != 0; None if there is none."""
        if self.kind == "log":
            return None
        other: Literal["time", "inverse"] = "inverse" if self.kind == "time" else "time"
        return replace(self, kind=other).times(c)

    def log(self) -> Clock | None:
        """Return the clock of the logarithm of the number; None if there is none."""
        if self.kind == "log" or self.factor < 0.0:
            return None
        return replace(self, kind="log", factor=1.0 if self.kind == "time" else -1.0)

    def exp(self) -> Clock | None:
        """Return the clock of the exponential of the number; None if there is none."""
        if self.kind != "log" or abs(self.factor) != 1.0:
            return None
        return replace(self, kind="time" if self.factor > 0.0 else "inverse", factor=1.0)
