"""Detection of hidden inputs of a program: other random generators, clocks, files and state.

Three checks are made while the program runs:

- The states of the global random generators: a draw changes the state.
- Calls, recorded by a profile function: to the operating system's entropy (as `secrets`, `uuid`
  and unseeded generators make), to clocks, `id`, `hash` and `repr`, to files, and to functions
  that seed a PyTorch generator.
- State reachable from the program: attributes, closures, named globals and the environment.
  Private generators and counters change from run to run; a cache stops changing.

The checks are not a proof: calls from compiled code, files read by a library, uninitialized memory,
other threads and other processes are not detected.
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
except ImportError:  # The module does not exist on Windows.
    resource = None  # type: ignore[assignment]

MOST_OBJECTS = 5_000
"""Maximum number of objects that are inspected for state, in breadth-first order."""

_ENTROPY = {os.urandom: "os.urandom"}
if hasattr(os, "getrandom"):
    _ENTROPY[os.getrandom] = "os.getrandom"

_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
_SYSTEM = ("times", "getloadavg", "stat", "lstat", "fstat", "open", "listdir", "scandir", "fork")
_CLOCKS_AND_FILES: dict[Any, str] = {
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
    _CLOCKS_AND_FILES[resource.getrusage] = "resource.getrusage"
"""Only calls from outside of `_LIBRARIES` count: libraries read clocks and ids, e.g. for logs."""

_DATES = {"now", "today", "utcnow"}
"""Methods of `datetime.date`, `datetime.datetime` and their subclasses."""

_SEEDS = {
    f"Generator.{name}" for name in ("seed", "manual_seed", "set_state", "graphsafe_set_state")
}
"""Methods that seed a PyTorch generator: draws from a seeded generator are not random."""

MOST_GENERATORS = 100
"""Maximum number of PyTorch generators; more are taken as new generators in each run."""

_LIBRARIES = ({"numba", "numpy", "otlp", "scipy", "torch"} | sys.stdlib_module_names) - {"pathlib"}

_PLAIN = (int, float, complex, str, bytes, np.generic, type(None))


class HiddenInput:
    """Detects inputs of a program other than the generator that is passed to it.

    Parameters
    ----------
    program : callable
        The program; the states of the global generators are recorded immediately.
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        self._program = program
        self._states = _shared_generators()
        self._called = ""
        self._baseline: list[object] | None = None
        self._generators: set[object] = set()

    def start_comparing(self) -> None:
        """Record the program's state, which must not change after caches are filled."""
        self._baseline = _reachable_state(self._program)
        self._states = _shared_generators() | self._states  # Adds generators imported since.

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Record calls in this thread within the context."""
        before, collecting = sys.getprofile(), gc.isenabled()
        gc.disable()  # Calls of finalizers and collector callbacks are not the program's.
        sys.setprofile(self._record)
        try:
            yield
        finally:
            if isinstance(before, Profile):  # cProfile: an object, not a profile function.
                before.enable()
            else:
                sys.setprofile(before)
            if collecting:
                gc.enable()

    def drawn_from(self, generators: set[object]) -> None:
        """Record the PyTorch generators that were passed to random functions in a run."""
        if generators - self._generators and (
            self._baseline is not None or len(self._generators) >= MOST_GENERATORS
        ):
            self._called = self._called or "new PyTorch generators in each run"
        self._generators |= generators

    def found(self) -> str:
        """Return a description of the hidden input; empty if none was detected."""
        if self._called:
            return f"it uses {self._called}, not only its arguments and rng"
        for name, state in _shared_generators().items():
            if self._states.get(name, state) != state:
                return f"it draws from {name}, a global random generator, not only from rng"
        if self._baseline is not None and self._baseline != _reachable_state(self._program):
            return (
                "it keeps state between runs: a random generator, a counter or another number "
                "that it holds changes from run to run"
            )
        return ""

    def _record(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if called in _ENTROPY:
                self._called = self._called or _ENTROPY[called]
            elif getattr(called, "__qualname__", "") in _SEEDS:
                self._called = self._called or f"torch.{called.__qualname__}"
            elif reading := _CLOCKS_AND_FILES.get(called) or _date(called):
                if not _is_library(frame.f_globals.get("__name__")):
                    self._called = self._called or reading
        elif event == "call" and frame.f_code is random.Random.seed.__code__:
            # Only the frame shows whether a seed was passed.
            if frame.f_locals.get("a") is None:
                self._called = self._called or "random.Random without a seed"


def _date(called: Any) -> str:
    """Return the name of a `datetime` method that reads the clock; empty for other functions."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}"
    return ""


def _is_library(module: object) -> bool:
    return str(module).partition(".")[0] in _LIBRARIES


def _shared_generators() -> dict[str, object]:
    """Return the states of the global random generators."""
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
    # Numba has no public function to read the states of its generators.
    helper = getattr(sys.modules.get("numba"), "_helperlib", None)
    if helper is not None:
        states["numba"] = helper.rnd_get_state(helper.rnd_get_np_state_ptr())
        states["numba's random"] = helper.rnd_get_state(helper.rnd_get_py_state_ptr())
    return states


def _generator_state(generator: Any) -> object:
    """Return the state of a random generator; None for other objects."""
    if isinstance(generator, random.SystemRandom):
        return None  # It has no state; its calls to os.urandom are recorded.
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.BitGenerator):
        return pickle.dumps(generator.state)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    return None


def _reachable_state(program: object) -> list[object]:
    """Return numbers, strings, buffers and generator states reachable from a program, in order."""
    found: list[object] = [hash(frozenset(os.environ.items()))]
    seen: dict[int, object] = {}
    pending: deque[object] = deque([program])
    while pending and len(seen) < MOST_OBJECTS:
        thing = pending.popleft()
        if isinstance(thing, _PLAIN):
            found.append(thing)
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            content = _generator_state(thing) or _buffer_hash(thing)
            if content is not None:
                found.append(content)
                continue
            parts, kind = _parts(thing), type(thing)
            if kind.__module__ == "itertools" or not (parts or kind.__repr__ is object.__repr__):
                found.append(repr(thing))  # For example a counter, a date or a Fraction.
            pending.extend(parts)
    return found


def _buffer_hash(thing: Any) -> object:
    """Return a hash of the memory of an array, tensor or buffer; None for other objects."""
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
    """Return the objects that an object refers to (function: its closure and named globals)."""
    if isinstance(thing, ModuleType):
        return []
    if isinstance(thing, type):
        return [] if _is_library(thing.__module__) else [*vars(thing).values()]
    if isinstance(thing, FunctionType):
        world = (thing.__globals__, thing.__globals__.get("__builtins__"))
        parts = [part for part in gc.get_referents(thing) if not any(part is one for one in world)]
        return parts + ([] if _is_library(thing.__module__) else _named_globals(thing))
    if isinstance(thing, ContextVar):
        return [thing.get(None)]
    if isinstance(thing, np.ndarray):
        return [*thing.flat]
    if hasattr(thing, "__length_hint__"):  # An iterator: only __reduce__ shows its position.
        return [*thing.__reduce__()]
    return gc.get_referents(thing)


def _named_globals(function: FunctionType) -> list[Any]:
    names = set(_names(function.__code__))
    reached = [value for name, value in function.__globals__.items() if name in names]
    for module in [value for value in reached if isinstance(value, ModuleType)]:
        if not _is_library(module.__name__):
            reached += [value for name, value in vars(module).items() if name in names]
    return reached


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
