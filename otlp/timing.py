"""Timings and deadlines of a solve."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from math import inf
from sys import modules
from threading import Timer
from time import perf_counter
from typing import Any

# Context variables, so that functions deep inside a solver can check the deadline of their thread.
_deadline: ContextVar[tuple[float, float]] = ContextVar("deadline", default=(inf, inf))
_loading: ContextVar[float] = ContextVar("loading", default=0.0)
_inside: ContextVar[bool] = ContextVar("inside", default=False)

SILENCE = 2.0
"""Loading time in seconds after which a warning is logged."""

LOGGER = logging.getLogger("otlp")
"""Logger of the library; by default, its warnings go to standard error."""


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Set a deadline for the block: after `seconds`, `checkpoint` raises in this thread.

    An earlier deadline of an enclosing block also applies.
    """
    own = (inf, inf) if seconds is None else (perf_counter() + seconds, seconds)
    token = _deadline.set(min(own, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def loading() -> Iterator[None]:
    """Extend the deadline by the duration of the block; stopwatches report it as `load`.

    After a total of `SILENCE` seconds, `warn_once` logs a warning.  A nested block counts as part
    of the outer block.
    """
    if _inside.get():
        yield
        return
    waiting = Timer(max(0.0, SILENCE - _loading.get()), warn_once)
    waiting.daemon = True
    waiting.start()
    start, token = perf_counter(), _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)
        waiting.cancel()
        spent = perf_counter() - start
        end, seconds = _deadline.get()
        _deadline.set((end + spent, seconds))
        _loading.set(_loading.get() + spent)


@cache
def warn_once() -> None:
    """Log the reason for the delay, once per process; the message contains how to disable it."""
    LOGGER.warning(
        "otlp is loading its compiled kernels (5 to 20 s to compile them, once per machine; then "
        "about a second per process). Reported times do not include this. To disable this "
        "message: logging.getLogger('otlp').setLevel('ERROR')"
    )


def loaded(module: str) -> Any:
    """Import a module at its first use, inside `loading`, and return it."""
    # Import also if the module is in `sys.modules`, since another thread may still be loading it.
    with nullcontext() if module in modules else loading():
        return import_module(module)


def seconds_left() -> float:
    """Return the seconds until the deadline; infinity if there is none."""
    return _deadline.get()[0] - perf_counter()


def checkpoint() -> None:
    """Raise TimeoutError if the deadline has passed; call this between steps of a computation.

    Raises
    ------
    TimeoutError
    """
    end, seconds = _deadline.get()
    if end < perf_counter():
        raise TimeoutError(f"stopped after {seconds:g} s")


@dataclass(frozen=True)
class Timings:
    """Seconds spent in each part of a solve: solver, verifier and loading.

    Attributes
    ----------
    reduce : float
        Reductions of the solver: support, merging of tuples, subset selection, outer residuals;
        zero for a rule without reductions.
    build : float
        Construction of a network or a linear program for the solver's engine.
    solve : float
        Engine or numerical core of the solver, and everything not in another part.
    recover : float
        Construction of the plan from the engine's answer.
    marginals : float
        Sums of the verifier: acceptance and output distribution of the plan.
    bound : float
        Dual bound of the verifier: from the solver's subset, or with its own search for a subset.
    load : float
        Loading of kernels and engines at their first call in a process, or compilation of kernels
        at their first call on a machine; not part of the sums, and zero from the second solve of
        the same type on.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> taken = otlp.solve(problem, "naive").timings
    >>> taken.reduce, taken.plan == taken.solve, taken.total > taken.plan
    (0.0, True, True)
    """

    reduce: float = 0.0
    build: float = 0.0
    solve: float = 0.0
    recover: float = 0.0
    marginals: float = 0.0
    bound: float = 0.0
    load: float = 0.0

    @property
    def plan(self) -> float:
        """Seconds to compute the plan, without the certificate."""
        return self.reduce + self.build + self.solve + self.recover

    @property
    def total(self) -> float:
        """Seconds to compute the plan and its certificate, without `load`."""
        return self.plan + self.marginals + self.bound

    def to_dict(self) -> dict[str, float]:
        """Return the parts and both sums by name, for JSON."""
        return {**vars(self), "plan": self.plan, "total": self.total}


PARTS = tuple(field.name for field in fields(Timings))


class Stopwatch:
    """Stopwatch that assigns the time of a solve to its parts."""

    def __init__(self) -> None:
        self._last, self._loaded = perf_counter(), _loading.get()
        self._seconds = dict.fromkeys(PARTS, 0.0)

    def charge(self, part: str) -> None:
        """Charge the time since the last charge to `part`, a field of `Timings`, or to `load`."""
        now, loaded = perf_counter(), _loading.get()
        loading = loaded - self._loaded
        self._seconds[part] += now - self._last - loading
        self._seconds["load"] += loading
        self._last, self._loaded = now, loaded

    def read(self) -> Timings:
        """Return the seconds charged so far."""
        return Timings(**self._seconds)
