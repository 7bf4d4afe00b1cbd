"""Interface of the rounds of a loop, and the static tensors that they use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from otlp.device.llama import Cache
from otlp.device.loop_models import LoopModels
from otlp.device.steps import Progress, Step
from otlp.errors import InvalidInputError


def check_function(value: Any, name: str) -> Any:
    """Return `value`, or raise InvalidInputError if it is not callable."""
    if not callable(value):
        raise InvalidInputError(f"{name} must be a function, got {value!r:.60}")
    return value


PARTS = ("draft", "target", "verification", "rest")
"""Names of the timed parts of a round."""


@dataclass(eq=False)
class RoundState:
    """State of one batch of texts.

    Attributes
    ----------
    progress : Progress
    caches : list of Cache
        Cache of the target, followed by the cache of the draft model if there is one.
    steps : dict of function
        Steps from `Rounds.steps`, compiled or not.
    numbers : Tensor
        Random numbers of the current round, from `Rounds.numbers`.
    buffers : object
        Other tensors from `Rounds.tensors`.
    parts : dict of float
        Seconds so far, by part.
    """

    progress: Progress
    caches: list[Cache]
    steps: dict[str, Step]
    numbers: Tensor
    buffers: Any
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def add_times(self, *times: float) -> None:
        """Add the durations of the parts of a round, from its start time and their end times."""
        for part, begin, end in zip(PARTS, times[:-1], times[1:], strict=True):
            self.parts[part] += end - begin


class Rounds(ABC):
    """A method of drafting and verification, for a target and an optional draft model.

    Attributes
    ----------
    models : LoopModels
    clock : callable
        Clock for the times of the parts of a round.
    length : int
        Length of the longest drafted path.
    nodes : int
        Number of drafted tokens per text.
    slots : tuple of int
        Number of cache slots after the text, for each model.
    numbers_a_round : int
        Number of random numbers per round and text.
    rounded : tuple of str
        Names of the steps whose results must not depend on the rounding of a compiler.
    """

    models: LoopModels
    clock: Callable[[], float]
    length: int
    nodes: int
    slots: tuple[int, ...]
    numbers_a_round: int
    rounded: tuple[str, ...] = ()

    @property
    @abstractmethod
    def bytes_a_text(self) -> int:
        """Size of the distributions of a round, in bytes per text."""

    @abstractmethod
    def steps(self) -> dict[str, Step]:
        """Return the functions of tensors that a round calls, by name, for one shape."""

    @abstractmethod
    def tensors(self, batch: int, context: int) -> tuple[Tensor, Any]:
        """Create the tensors `numbers` and `buffers` of `RoundState`."""

    @abstractmethod
    def numbers(self, given: Any, state: RoundState) -> Iterator[Tensor]:
        """Return an iterator over the random numbers of each round, after checking `given`."""

    @abstractmethod
    def play(self, state: RoundState) -> None:
        """Run one round, changing the state in place."""
