"""Compiled steps, and steps as they are where nothing can be compiled; captured rounds on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from otlp.errors import clean

CPU = torch.device("cpu")

ISOLATED = "isolate_recompiles" in signature(torch.compile).parameters
"""Whether each call of `torch.compile` can keep its graphs to itself.

Frozen weights are constants of a graph; a graph that is shared would be taken for another model.
"""

_said: set[str] = set()


class CompiledStep:
    """A step that `torch.compile` makes a graph of at its first call, or that stays as it is.

    Parameters
    ----------
    step : function
        Of tensors; changes nothing before it is compiled.  On a CPU the weights that it reads are
        frozen: they must not change, and calls must be under `torch.no_grad`, since PyTorch does
        not freeze in inference mode.
    device : torch.device, optional
        Of the tensors; the CPU by default.

    Attributes
    ----------
    compiled : bool
        Whether compilation worked.
    """

    def __init__(self, step: Callable[..., Any], device: torch.device = CPU) -> None:
        self._step = step
        self._device = device
        self._called = False
        self.compiled = True

    def __call__(self, *arguments: Any) -> Any:
        """Do the step."""
        if self._called:
            return self._step(*arguments)
        plain = self._step
        try:
            self._step = self._compiled(plain)
            found = self._step(*arguments)
        except Exception as error:  # compilers fail in many ways, each with its own type
            self._step, self.compiled = plain, False
            say_once("the steps are not compiled, decoding is slower", error)
            found = plain(*arguments)
        except BaseException:
            self._step = plain
            raise
        self._called = True
        return found

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        own: dict[str, Any] = {}
        if ISOLATED:
            own = {"isolate_recompiles": True}
            if self._device.type == "cpu":
                own["options"] = {"freezing": True}
        return torch.compile(step, fullgraph=True, dynamic=False, **own)


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


def say_once(what: str, error: BaseException) -> None:
    """Warn once in a process, with the first line of the reason."""
    if what not in _said:
        _said.add(what)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{what}: {clean(reason):.200}", RuntimeWarning, stacklevel=4)
