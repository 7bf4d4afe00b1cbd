"""The tensors that a round on the device works on, all at their places for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from otlp.device.llama import Cache
from otlp.device.steps import Progress
from otlp.device.verifying import TreeRound

PARTS = ("draft", "target", "verification", "rest")
"""What the time of a round is divided into."""


class Drafted(NamedTuple):
    """What is drafted in a round, the distributions of both models, and its verification."""

    tokens: Tensor
    draft: Tensor
    target: Tensor
    drawing: Tensor
    verify: Callable[[], TreeRound]


@dataclass(eq=False)
class RoundState:
    """Of one batch of texts."""

    progress: Progress
    numbers: Tensor
    drafted: Drafted | None
    steps: dict[str, Any]
    own: Tensor
    caches: list[Cache]
    moving: list[Cache]
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
