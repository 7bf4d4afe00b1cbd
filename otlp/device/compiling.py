"""Compilation of steps, with a fallback to eager execution, and CUDA graph capture of rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from otlp.errors import clean

CPU = torch.device("cpu")

ISOLATED = "isolate_recompiles" in signature(torch.compile).parameters
"""Whether `torch.compile` can isolate the graphs of each call.

Frozen weights are constants of a graph, so a shared graph would use the weights of another model.
"""

_warned: set[str] = set()


class CompiledStep:
    """A step compiled by `torch.compile` at its first call, or run eagerly if that fails.

    Parameters
    ----------
    step : function
        Function of tensors; a failed compilation must not change any state.  On a CPU its weights
        are frozen: they must not change, and calls must be under `torch.no_grad`, since PyTorch
        does not freeze in inference mode.
    device : torch.device, optional
        Device of the tensors, default CPU.

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
        """Run the step."""
        if self._called:
            return self._step(*arguments)
        plain = self._step
        try:
            self._step = self._compiled(plain)
            found = self._step(*arguments)
        except Exception as error:  # Compilers raise many types of errors.
            self._step, self.compiled = plain, False
            warn_once("the steps are not compiled, decoding is slower", error)
            found = plain(*arguments)
        except BaseException:
            self._step = plain
            raise
        self._called = True
        return found

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {}
        if ISOLATED:
            options = {"isolate_recompiles": True}
            if self._device.type == "cpu":
                options["options"] = {"freezing": True}
        return torch.compile(step, fullgraph=True, dynamic=False, **options)


def captured(round_of: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture a round as a CUDA graph; on other devices return the round unchanged.

    Parameters
    ----------
    round_of : callable
        Function that uses the same tensors at every call and reads no value back.
    device : torch.device
        Device of the tensors.

    Notes
    -----
    Capture requires a warm-up, for which three rounds are run.

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
        warn_once("the rounds are not captured as a CUDA graph, decoding is slower", error)
        return round_of
    return graph.replay


def warn_once(message: str, error: BaseException) -> None:
    """Warn once per process, with the first line of the error."""
    if message not in _warned:
        _warned.add(message)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{message}: {clean(reason):.200}", RuntimeWarning, stacklevel=4)
