"""What decoding took: tokens, calls, seconds by part, of a prompt and of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from otlp.distribution import FloatArray
from otlp.studies.estimate import Estimate, rate_ratio, ratio


class Decoding(NamedTuple):
    """What one prompt took.

    Attributes
    ----------
    tokens : int
        New ones.
    calls : float
        Target calls; NaN if unknown.
    rounds : int
    parts : dict of float
        Seconds by part; none where the way does not say.
    wall, processor : float
        Seconds of all rounds, or of the whole call.
    """

    tokens: int
    calls: float
    rounds: int
    parts: dict[str, float]
    wall: float
    processor: float


def together(some: Sequence[Decoding]) -> Decoding:
    """What some took in all; at least one."""
    parts = {part: sum(one.parts[part] for one in some) for part in some[0].parts}
    return Decoding(
        sum(one.tokens for one in some),
        sum(one.calls for one in some),
        sum(one.rounds for one in some),
        parts,
        sum(one.wall for one in some),
        sum(one.processor for one in some),
    )


@dataclass(frozen=True, eq=False)
class Timed:
    """One way of decoding, timed on all prompts.

    Attributes
    ----------
    first_seconds : float
        Wall time of the run before, with compilation.
    runs : list of Decoding
        One for each prompt.
    """

    first_seconds: float = 0.0
    runs: list[Decoding] = field(default_factory=list)

    def each(self, what: str) -> FloatArray:
        """An attribute of `Decoding` for each prompt."""
        return np.array([getattr(run, what) for run in self.runs], dtype=np.float64)

    def rate(self, clock: str) -> Estimate:
        """Tokens a second of a clock of `CLOCKS`."""
        return ratio(self.each("tokens"), self.each(clock))

    def speed_up(self, other: Timed, clock: str) -> Estimate:
        """Tokens a second over those of another way on the same prompts, paired."""
        one, two = ((way.each("tokens"), way.each(clock)) for way in (self, other))
        return rate_ratio(*one, *two)

    @property
    def block_efficiency(self) -> Estimate:
        """Tokens a target call; NaN where calls are unknown."""
        return ratio(self.each("tokens"), self.each("calls"))

    def seconds_a_round(self, clock: str) -> dict[str, float]:
        """Seconds of a round by part; all of it is the target's where the way does not say."""
        rounds = self.each("rounds").sum()
        if not self.runs[0].parts:  # on a GPU the parts run on by themselves
            whole = float(self.each(clock).sum() / rounds)
            return {"draft": 0.0, "target": whole, "verification": 0.0, "rest": 0.0}
        return {part: seconds / rounds for part, seconds in together(self.runs).parts.items()}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in their sum."""
        parts = together(self.runs).parts
        return {name: seconds / sum(parts.values()) for name, seconds in parts.items()}

    def record(self, clock: str) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {
            "tokens_per_second": self.rate(clock).record(),
            "block_efficiency": self.block_efficiency.record(),
            "wall_seconds": self.each("wall").tolist(),
            "processor_seconds": self.each("processor").tolist(),
            "tokens": [run.tokens for run in self.runs],
            "shares": self.shares,
            "round_seconds": self.seconds_a_round(clock) if self.runs[0].parts else {},
            "first_seconds": self.first_seconds,
        }
