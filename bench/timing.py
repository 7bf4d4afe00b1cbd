"""How the benchmarks take the time of one action."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter


def seconds_of(action: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of one call, by a clock."""
    start = clock()
    action()
    return clock() - start


def repeated(action: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of some calls, after a first one that compiles and fills caches."""
    action()
    return [seconds_of(action) for _ in range(rounds)]
