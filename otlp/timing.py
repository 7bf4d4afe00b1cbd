"""Where the time of a solve goes: build, reduce, solve, recover, verify."""

from __future__ import annotations

from dataclasses import dataclass, fields
from time import perf_counter

__all__ = ["Stopwatch", "Timings"]


@dataclass(frozen=True)
class Timings:
    """Seconds spent in each part of a solve.

    Attributes
    ----------
    build : float
        Listing tuples and filling the arrays that an engine takes.
    reduce : float
        Reductions: subset selection, restriction to the support, outer residuals.
    solve : float
        The engine or the numerical core.
    recover : float
        From the engine's answer to a plan.
    verify : float
        Recomputing acceptance, bound and marginals from the plan.
    """

    build: float = 0.0
    reduce: float = 0.0
    solve: float = 0.0
    recover: float = 0.0
    verify: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all parts, in seconds."""
        return self.build + self.reduce + self.solve + self.recover + self.verify


PARTS = tuple(field.name for field in fields(Timings))


class Stopwatch:
    """Adds the time since the last lap to one part."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """Charge the time since the last lap to `part`, a field of `Timings`."""
        now = perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    def read(self) -> Timings:
        """Return the seconds charged so far."""
        return Timings(**self._seconds)
