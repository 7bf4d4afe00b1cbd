"""Compiled steps, and steps as they are where nothing can be compiled; captured rounds on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from types import FunctionType
from typing import Any

import torch

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
        self.seconds = 0.0
        self.compiled = True

    def __call__(self, *arguments: Any) -> Any:
        """Do the step."""
        if self.seconds:
            return self._step(*arguments)
        begin = perf_counter()
        try:
            compiled = _unguarded(self._step, self._device)
            found = compiled(*arguments)
            self._step = compiled
        except Exception:  # compilers fail in many ways, each with its own type
            found = self._tried_again(arguments)
        self.seconds = perf_counter() - begin
        return found

    def _tried_again(self, arguments: tuple[Any, ...]) -> Any:
        """Do the step, compiled in a fresh cache if that works.

        A process that was killed may leave half a library in the compiler's cache, and none that
        comes later replaces it.
        """
        try:
            from torch._inductor.utils import fresh_inductor_cache  # which takes a second

            with fresh_inductor_cache():
                compiled = _unguarded(self._step, self._device)
                found = compiled(*arguments)
            self._step = compiled
            return found
        except Exception as error:
            self.compiled = False
            say_once("the steps are not compiled, decoding is slower", error)
            return self._step(*arguments)


def _unguarded(step: Any, device: torch.device) -> Callable[..., Any]:
    """Compile without checks before each call, which took a tenth of a millisecond.

    Compiled code is kept by code object, so each step gets one of its own.
    """
    own = FunctionType(
        step.__code__.replace(), step.__globals__, step.__name__, None, step.__closure__
    )
    return torch.compile(own, fullgraph=True, dynamic=False, options=_options(device))


def _options(device: torch.device) -> dict[str, Any]:
    """What the compiler is asked for, as far as this version of PyTorch knows it."""
    from torch._inductor import config  # which takes a second

    # hundreds of small buffers are taken and given back in C++; a GPU replays a graph instead
    options: dict[str, Any] = {"cpp_wrapper": device.type == "cpu"}
    # a product and a sum in one go; in older versions the option is a switch
    contract = "cpp.enable_floating_point_contract_flag"
    known = config.get_config_copy()
    if contract in known:
        options[contract] = True if isinstance(known[contract], bool) else "fast"
    if torch.__version__ >= "2.8":  # not by letters: PyTorch compares numbers
        options["guard_filter_fn"] = lambda guards: [False] * len(guards)
    return options


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
