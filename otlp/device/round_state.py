"""What a loop plays: rounds of one kind, and the tensors they work on, at their places for good."""

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


def check_function(value: Any, what: str) -> Any:
    """Return a function; refuse another object by name."""
    if not callable(value):
        raise InvalidInputError(f"{what} is {value!r:.60}: it must be a function")
    return value


PARTS = ("draft", "target", "verification", "rest")
"""What the time of a round is divided into."""


@dataclass(eq=False)
class RoundState:
    """Of one batch of texts.

    Attributes
    ----------
    progress : Progress
    caches : list of Cache
        Of the target, and of the draft if there is one.
    steps : dict of function
        What `Rounds.steps` gave, compiled or not.
    numbers : Tensor
        What a round is given by `Rounds.numbers`.
    kept : object
        What else `Rounds.tensors` made.
    parts : dict of float
        Seconds so far.
    """

    progress: Progress
    caches: list[Cache]
    steps: dict[str, Step]
    numbers: Tensor
    kept: Any
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def took(self, *times: float) -> None:
        """Add up the parts of a round, from the times at their ends and at its beginning."""
        for part, begin, end in zip(PARTS, times[:-1], times[1:], strict=True):
            self.parts[part] += end - begin


class Rounds(ABC):
    """A way to draft and to verify, for one target and, but where nothing is drafted, one draft.

    Attributes
    ----------
    models : LoopModels
    clock : callable
        What the parts of a round are timed by.
    length : int
        Of the longest path that is drafted.
    nodes : int
        Drafted tokens of a text.
    slots : tuple of int
        Slots of each model's cache behind the text.
    numbers_a_round : int
        What a round takes for each text.
    rounded : tuple of str
        Steps whose results must not depend on how a compiler rounds.
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
        """What a round keeps of a text's distributions."""

    @abstractmethod
    def steps(self) -> dict[str, Step]:
        """Functions of tensors that a round calls, by name, for one shape."""

    @abstractmethod
    def tensors(self, batch: int, context: int) -> tuple[Tensor, Any]:
        """Make what `RoundState` calls numbers and kept."""

    @abstractmethod
    def numbers(self, given: Any, state: RoundState) -> Iterator[Tensor]:
        """What each round is given; refuse what is none of it."""

    @abstractmethod
    def play(self, state: RoundState) -> None:
        """Change the state by one round."""
