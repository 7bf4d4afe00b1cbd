"""What a program uses beside the generator that it is handed: other randomness, clocks, memory.

Three things are watched while the program runs.  The states of the generators that every program
can reach: a draw changes them.  The calls that it makes to the operating system's entropy (as
`secrets`, `uuid` and generators without a seed do), to clocks, to `id` and to `open`, by a profile
function.  And what it holds between runs, in attributes, closures and the globals that it names:
private generators and counters, which change from run to run, where a cache settles.

None of this is a proof: a call from compiled code, a file read by a library, memory that was never
written, another thread or another process are not seen.
"""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

MOST_OBJECTS = 5_000
"""How many objects are looked at for what the program holds, the nearest first."""

_ENTROPY = {os.urandom: "os.urandom"}
if hasattr(os, "getrandom"):
    _ENTROPY[os.getrandom] = "os.getrandom"

_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
_READINGS: dict[Any, str] = {
    **{getattr(time, name): f"time.{name}" for name in dir(time) if name.endswith(_CLOCKS)},
    datetime.datetime.now: "datetime.now",
    datetime.datetime.utcnow: "datetime.utcnow",
    datetime.date.today: "date.today",
    id: "id",
    open: "open",
}
"""Counted only from code that is not a library's: those take the time, or look up ids, for logs."""

_LIBRARIES = {"numba", "numpy", "otlp", "scipy", "torch"} | sys.stdlib_module_names

_PLAIN = (int, float, complex, str, bytes, np.generic, type(None))


class HiddenInput:
    """Watches a program for what it uses beside the generator that it is handed.

    Parameters
    ----------
    program : callable
        Watched from now on.
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        self._program = program
        self._states = _shared_generators()
        self._called = ""
        self._held: list[object] | None = None

    def settle(self) -> None:
        """Caches are filled: from now on, what the program holds should stay as it is."""
        self._held = _held(self._program)
        self._states = _shared_generators() | self._states  # of what was imported since

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Watch the calls that are made inside, in this thread."""
        before, collecting = sys.getprofile(), gc.isenabled()
        gc.disable()  # what finalizers and the collector's callbacks call is not the program's
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)
            if collecting:
                gc.enable()

    def found(self) -> str:
        """What the program uses, in words; empty if nothing was seen."""
        for name, state in _shared_generators().items():
            if self._states.get(name, state) != state:
                return f"it draws from {name}, a global random generator, not from rng alone"
        if self._called:
            return f"it uses {self._called}, not its arguments and rng alone"
        if self._held is not None and self._held != _held(self._program):
            return (
                "it remembers earlier runs: a random generator, a counter or another number that "
                "it holds changes from run to run"
            )
        return ""

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if called in _ENTROPY:
                self._called = self._called or _ENTROPY[called]
            elif called in _READINGS and not _of_a_library(frame.f_globals.get("__name__")):
                self._called = self._called or _READINGS[called]
            elif getattr(called, "__qualname__", "") == "Generator.seed":
                self._called = self._called or "torch.Generator.seed"
        elif event == "call" and frame.f_code is random.Random.seed.__code__:
            if frame.f_locals.get("a") is None:
                self._called = self._called or "random.Random without a seed"


def _of_a_library(module: object) -> bool:
    return str(module).partition(".")[0] in _LIBRARIES


def _shared_generators() -> dict[str, object]:
    """States of the generators that every program can reach."""
    states: dict[str, object] = {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),
    }
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        states["torch"] = torch.random.get_rng_state().numpy().tobytes()
        if torch.cuda.is_initialized():
            states["torch.cuda"] = [
                state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()
            ]
    # numba has no public way to read the states of its generators
    helper = getattr(sys.modules.get("numba"), "_helperlib", None)
    if helper is not None:
        states["numba"] = helper.rnd_get_state(helper.rnd_get_np_state_ptr())
        states["numba's random"] = helper.rnd_get_state(helper.rnd_get_py_state_ptr())
    return states


def _state(generator: Any) -> object:
    """The state of a random generator; None of anything else."""
    if isinstance(generator, random.SystemRandom):
        return None  # it has none: its calls are seen
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.BitGenerator):
        return pickle.dumps(generator.state)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    return None


def _held(program: object) -> list[object]:
    """Numbers, texts, arrays and states of generators that a program reaches, nearest first."""
    found: list[object] = []
    seen: dict[int, object] = {}
    pending: deque[object] = deque([program])
    while pending and len(seen) < MOST_OBJECTS:
        thing = pending.popleft()
        if isinstance(thing, _PLAIN):
            found.append(thing)
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            state = _state(thing)
            if state is not None:
                found.append(state)
            elif isinstance(thing, np.ndarray) and thing.dtype != object:
                found.append(hash(thing.tobytes()))
            elif type(thing).__module__ == "itertools":
                found.append(repr(thing))
            else:
                pending.extend(_parts(thing))
    return found


def _parts(thing: Any) -> list[Any]:
    """What an object holds; of a function its closure and the globals that it names."""
    if isinstance(thing, ModuleType):
        return []
    if isinstance(thing, type):
        return [] if _of_a_library(thing.__module__) else [*vars(thing).values()]
    if isinstance(thing, FunctionType):
        world = (thing.__globals__, thing.__globals__.get("__builtins__"))
        parts = [part for part in gc.get_referents(thing) if not any(part is one for one in world)]
        return parts + ([] if _of_a_library(thing.__module__) else _named_globals(thing))
    return gc.get_referents(thing)


def _named_globals(function: FunctionType) -> list[Any]:
    names = set(_names(function.__code__))
    reached = [value for name, value in function.__globals__.items() if name in names]
    for module in [value for value in reached if isinstance(value, ModuleType)]:
        if not _of_a_library(module.__name__):
            reached += [value for name, value in vars(module).items() if name in names]
    return reached


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
