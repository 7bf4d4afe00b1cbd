"""Where the time of a solve goes, and when it is over."""

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

# Of the thread's own context, so that what lies many calls below a solver can keep its limit.
_deadline: ContextVar[tuple[float, float]] = ContextVar("deadline", default=(inf, inf))
_loading: ContextVar[float] = ContextVar("loading", default=0.0)
_inside: ContextVar[bool] = ContextVar("inside", default=False)

SILENCE = 2.0
"""Seconds of loading that nothing is said of."""

LOGGER = logging.getLogger("otlp")
"""Its warnings are on standard error, unless the program that runs says otherwise."""


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
def loading() -> Iterator[None]:
    """Put the deadline off by the time that the block takes, and let stopwatches set it apart.

    Once it has taken `SILENCE` seconds in all, `say_once` says so.  A block inside is part of the
    one around it.
    """
    if _inside.get():
        yield
        return
    waiting = Timer(max(0.0, SILENCE - _loading.get()), say_once)
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
def say_once() -> None:
    """Say why nothing comes yet, once a process; a reader turns it off as the words say."""
    LOGGER.warning(
        "otlp is loading its kernels: some seconds a process, and 20 to 40 more where they are "
        "compiled, once a machine. It is in no time that is reported. (Silence: "
        "logging.getLogger('otlp').setLevel('ERROR'))"
    )


def loaded(module: str) -> Any:
    """Import a module where it is first used, as `loading`, and return it."""
    # also what is there is imported: another thread may still be at it
    with nullcontext() if module in modules else loading():
        return import_module(module)


def seconds_left() -> float:
    """Seconds up to the deadline; infinite where there is none."""
    return _deadline.get()[0] - perf_counter()


def checkpoint() -> None:
    """Stop here if the deadline has passed; between the pieces of a long computation.

    Raises
    ------
    TimeoutError
    """
    end, seconds = _deadline.get()
    if end < perf_counter():
        raise TimeoutError(f"stopped after {seconds:g} s")


@dataclass(frozen=True)
class Timings:
    """Seconds spent in each part of a solve: the solver's, the verifier's, and loading.

    Attributes
    ----------
    reduce : float
        The solver's reductions: the tokens that can be drafted, merging of tuples, subset
        selection, outer residuals; zero for a rule that has none.
    build : float
        Writing a network or a linear program for the solver's engine.
    solve : float
        The solver's engine or numerical core, and whatever is no other part.
    recover : float
        From the engine's answer back to a plan.
    marginals : float
        The verifier's sums: acceptance and output distribution, from the plan.
    bound : float
        The verifier's dual bound: that of the solver's subset, or its own search for one.
    load : float
        Loading kernels and engines at their first call in a process, or compiling kernels at the
        very first; in no sum, and zero from the second solve of a kind on.

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
        """Seconds of the solver, without the certificate: what a plan by itself would take."""
        return self.reduce + self.build + self.solve + self.recover

    @property
    def total(self) -> float:
        """Seconds of the plan and of its certificate, without `load`."""
        return self.plan + self.marginals + self.bound

    def to_dict(self) -> dict[str, float]:
        """Return the parts and both sums by name, for JSON."""
        return {**vars(self), "plan": self.plan, "total": self.total}


PARTS = tuple(field.name for field in fields(Timings))


class Stopwatch:
    """Charges the time of a solve to its parts."""

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
