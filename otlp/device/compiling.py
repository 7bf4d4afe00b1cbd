"""Compiled steps, and steps as they are where nothing can be compiled; captured rounds on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import is_
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from otlp.device.products import NATIVE, compiled_products
from otlp.errors import clean

CPU = torch.device("cpu")

_said: set[str] = set()


class CompiledStep:
    """A step that `torch.compile` makes a graph of at its first call, or that stays as it is.

    Parameters
    ----------
    step : function
        Of tensors; changes nothing before it is compiled.  All calls are to have tensors of the
        same shapes: nothing looks.
    device : torch.device, optional
        Of the tensors; the CPU by default.

    Attributes
    ----------
    seconds : float
        Wall time of the first call, most of it compilation.
    compiled : bool
        Whether compilation worked.
    """

    def __init__(self, step: Callable[..., Any], device: torch.device = CPU) -> None:
        self._step = step
        self._device = device
        self._bound: tuple[Any, ...] = ()
        self._again: Callable[[], Any] | None = None
        self.seconds = 0.0
        self.compiled = True

    def __call__(self, *arguments: Any) -> Any:
        """Do the step."""
        if self._again is not None and all(map(is_, self._bound, arguments)):
            self._again()
            return None
        if self.seconds:
            return self._called(arguments)
        begin, plain = perf_counter(), self._step
        try:
            self._step = self._compiled(plain)
            found = self._called(arguments)
        except Exception:  # compilers fail in many ways, each with its own type
            found = self._tried_again(plain, arguments)
        except BaseException:
            self._step = plain
            raise
        self.seconds = perf_counter() - begin
        return found

    def _called(self, arguments: tuple[Any, ...]) -> Any:
        """Call the step, whose graph says how to call it on the same tensors again."""
        self._again = None
        found = self._step(*arguments)
        self._bound = arguments
        if found is not None:
            self._again = None
        return found

    def _tried_again(self, plain: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Do the step, compiled in a fresh cache if that works.

        A process that was killed may leave half a library in the compiler's cache, and none that
        comes later replaces it.
        """
        try:
            from torch._inductor.utils import fresh_inductor_cache  # which takes a second

            with fresh_inductor_cache():
                self._step = self._compiled(plain)
                return self._called(arguments)
        except Exception as error:
            self._step, self.compiled = plain, False
            say_once("the steps are not compiled, decoding is slower", error)
            return plain(*arguments)

    def _compiled(self, step: Any) -> Callable[..., Any]:
        """Compile without checks before each call, which took a tenth of a millisecond.

        Compiled code is kept by code object, so each step gets one of its own.
        """
        code, closure = step.__code__.replace(), step.__closure__
        own = FunctionType(code, step.__globals__, step.__name__, None, closure)
        backend = self._by_inductor if NATIVE and self._device.type == "cpu" else "inductor"
        unguarded: dict[str, Any] | None = None
        if torch.__version__ >= "2.8":
            unguarded = {"guard_filter_fn": lambda guards: [False] * len(guards)}
        return torch.compile(own, fullgraph=True, dynamic=False, backend=backend, options=unguarded)

    def _by_inductor(self, graph: Any, examples: Any) -> Any:
        """Compile a graph for a CPU, and keep the tensors of its last call.

        Those are the weights, too, which Python finds one by one at each call of the step.
        """
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        def inner(*graph: Any, **options: Any) -> Any:
            made = compile_fx_inner(*graph, **options)

            def call(tensors: list[Tensor]) -> Any:
                kept = tuple(tensors)  # made empties its list
                self._again = lambda: made(list(kept))
                return made(tensors)

            call._boxed_call = True  # type: ignore[attr-defined]
            return call

        # hundreds of small buffers are taken and given back in C++
        return compile_fx(graph, examples, inner, {"cpp_wrapper": True, **compiled_products()})


def captured(round_of: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A round as a CUDA graph, or as it is on another device.

    Parameters
    ----------
    round_of : callable
        Works on the same tensors each time, and reads nothing back.
    device : torch.device

    Notes
    -----
    Three rounds are played to warm up, as capture asks for.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import captured
    >>> def a_round():
    ...     pass
    >>> captured(a_round, torch.device("cpu")) is a_round
    True
    """
    if device.type != "cuda":
        return round_of
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            for _ in range(3):
                round_of()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            round_of()
    except RuntimeError as error:
        say_once("the rounds are not captured as a CUDA graph, decoding is slower", error)
        return round_of
    return graph.replay


def uncaptured(round_of: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A round as it is, on any device; in place of `captured`.

    Examples
    --------
    >>> import torch
    >>> from otlp.device import uncaptured
    >>> def a_round():
    ...     pass
    >>> uncaptured(a_round, torch.device("cpu")) is a_round
    True
    """
    return round_of


def say_once(what: str, error: BaseException) -> None:
    """Warn once in a process, with the first line of the reason."""
    if what not in _said:
        _said.add(what)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{what}: {clean(reason):.200}", RuntimeWarning, stacklevel=4)
