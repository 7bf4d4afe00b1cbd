"""Where the time of a solve goes, and when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from math import inf
from time import perf_counter

# Of the thread's own context, so that what lies many calls below a solver can keep its limit.
_deadline: ContextVar[tuple[float, float]] = ContextVar("deadline", default=(inf, inf))


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Let `checkpoint` raise, inside the block and in this thread, once the seconds are over.

    An earlier deadline around the block holds inside it, too.
    """
    own = (inf, inf) if seconds is None else (perf_counter() + seconds, seconds)
    token = _deadline.set(min(own, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Put the deadline off by the time that the block takes."""
    start = perf_counter()
    try:
        yield
    finally:
        end, seconds = _deadline.get()
        _deadline.set((end + perf_counter() - start, seconds))


def seconds_left() -> float:
    """Seconds up to the deadline; infinite where there is none."""
    return _deadline.get()[0] - perf_counter()


def checkpoint() -> None:
    """Stop here if the deadline has passed; between the pieces of a long computation.

    Raises
    ------
    TimeoutError
    """
    if seconds_left() < 0.0:
        raise TimeoutError(f"stopped after {_deadline.get()[1]:g} s")


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
