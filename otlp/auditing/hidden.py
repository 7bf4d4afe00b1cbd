"""What a program uses beside the generator that it is handed: other randomness, clocks, memory.

Three things are watched while the program runs.  The states of the generators that every program
can reach: a draw changes them.  The calls that it makes to the operating system's entropy (as
`secrets`, `uuid` and generators without a seed do), to clocks, to what tells addresses, to files,
and to what seeds a generator of PyTorch's, by a profile function.  And what it holds between runs,
in attributes, closures, the globals that it names and the environment: private generators and
counters, in whatever memory, which change from run to run, where a cache settles.

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
from contextvars import ContextVar
from cProfile import Profile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from otlp.auditing.random_source import BITS

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

MOST_OBJECTS = 5_000
"""How many objects are looked at for what the program holds, the nearest first."""

_ENTROPY = {os.urandom: "os.urandom"}
if hasattr(os, "getrandom"):
    _ENTROPY[os.getrandom] = "os.getrandom"

_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
_SYSTEM = ("times", "getloadavg", "stat", "lstat", "fstat", "open", "listdir", "scandir", "fork")
_READINGS: dict[Any, str] = {
    **{getattr(time, name): f"time.{name}" for name in dir(time) if name.endswith(_CLOCKS)},
    **{getattr(os, name): f"os.{name}" for name in _SYSTEM if hasattr(os, name)},
    id: "id",
    hash: "hash",
    repr: "repr",
    open: "open",
    gc.get_count: "gc.get_count",
    sys.getallocatedblocks: "sys.getallocatedblocks",
}
if resource is not None:
    _READINGS[resource.getrusage] = "resource.getrusage"
"""Counted only from code that is not a library's: those take the time, or look up ids, for logs."""

_DATES = {"now", "today", "utcnow"}
"""Methods of `datetime.date`, `datetime.datetime` and classes on them."""

_SEEDS = {
    f"Generator.{name}" for name in ("seed", "manual_seed", "set_state", "graphsafe_set_state")
}
"""Of PyTorch's generators: what is drawn after it is no news."""

MOST_GENERATORS = 100
"""Of PyTorch's, that a program may draw from: more are made anew at each run."""

_LIBRARIES = ({"numba", "numpy", "otlp", "scipy", "torch"} | sys.stdlib_module_names) - {"pathlib"}

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
        self._generators: set[object] = set()

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
            if isinstance(before, Profile):  # which Python's own profiler is, and no function
                before.enable()
            else:
                sys.setprofile(before)
            if collecting:
                gc.enable()

    def drawn_from(self, generators: set[object]) -> None:
        """Note which generators of PyTorch's were handed to its functions in a run."""
        if generators - self._generators and (
            self._held is not None or len(self._generators) >= MOST_GENERATORS
        ):
            self._called = self._called or "generators of PyTorch's that it makes anew"
        self._generators |= generators

    def found(self) -> str:
        """What the program uses, in words; empty if nothing was seen."""
        if self._called:
            return f"it uses {self._called}, not its arguments and rng alone"
        for name, state in _shared_generators().items():
            if self._states.get(name, state) != state:
                return f"it draws from {name}, a global random generator, not from rng alone"
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
            elif getattr(called, "__qualname__", "") in _SEEDS:
                self._called = self._called or f"torch.{called.__qualname__}"
            elif reading := _READINGS.get(called) or _date(called):
                if not _of_a_library(frame.f_globals.get("__name__")):
                    self._called = self._called or reading
        elif event == "call" and frame.f_code is random.Random.seed.__code__:
            # the profiler is handed the frame: whether there is a seed stands nowhere else
            if frame.f_locals.get("a") is None:
                self._called = self._called or "random.Random without a seed"


def _date(called: Any) -> str:
    """The name of a method that reads the clock, of a date's class or one on it."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}"
    return ""


def _of_a_library(module: object) -> bool:
    return str(module).partition(".")[0] in _LIBRARIES


def _shared_generators() -> dict[str, object]:
    """States of the generators that every program can reach."""
    states: dict[str, object] = {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),
        "rng by np.random.Generator's own methods": pickle.dumps(BITS.state),
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
    """Numbers, texts, memory and states of generators that a program reaches, nearest first."""
    found: list[object] = [hash(frozenset(os.environ.items()))]
    seen: dict[int, object] = {}
    pending: deque[object] = deque([program])
    while pending and len(seen) < MOST_OBJECTS:
        thing = pending.popleft()
        if isinstance(thing, _PLAIN):
            found.append(thing)
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            content = _state(thing) or _memory(thing)
            if content is not None:
                found.append(content)
                continue
            parts, kind = _parts(thing), type(thing)
            if kind.__module__ == "itertools" or not (parts or kind.__repr__ is object.__repr__):
                found.append(repr(thing))  # of a counter, a date or a number without parts
            pending.extend(parts)
    return found


def _memory(thing: Any) -> object:
    """A hash of the memory of an array, a tensor or another buffer; None of anything else."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(thing, torch.Tensor):
            flat = thing.detach().cpu().reshape(-1).view(torch.uint8)
            return hash(flat.numpy().tobytes())
        if isinstance(thing, np.ndarray):
            return None if thing.dtype.hasobject else hash(thing.tobytes())
        return hash(memoryview(thing).tobytes())
    except (TypeError, ValueError, RuntimeError):
        return None


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
    if isinstance(thing, ContextVar):
        return [thing.get(None)]
    if isinstance(thing, np.ndarray):
        return [*thing.flat]
    if hasattr(thing, "__length_hint__"):  # an iterator: how far it is stands in no object
        return [*thing.__reduce__()]
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
