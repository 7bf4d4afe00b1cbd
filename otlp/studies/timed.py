"""Tokens, calls and seconds of decoding, per prompt and over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from otlp.distribution import FloatArray
from otlp.studies.estimate import Estimate, rate_ratio, ratio


class Decoding(NamedTuple):
    """Tokens, calls and seconds of one prompt.

    Attributes
    ----------
    tokens : int
        Number of new tokens.
    calls : float
        Target calls; NaN if unknown.
    rounds : int
    parts : dict of float
        Seconds by part; empty if the method does not report parts.
    wall, processor : float
        Seconds of all rounds, or of the whole call.
    """

    tokens: int
    calls: float
    rounds: int
    parts: dict[str, float]
    wall: float
    processor: float


def sum_decodings(decodings: Sequence[Decoding]) -> Decoding:
    """Return the sums over a nonempty sequence of decodings."""
    tokens, calls, rounds, parts, wall, processor = zip(*decodings, strict=True)
    seconds = {part: sum(one[part] for one in parts) for part in parts[0]}
    return Decoding(sum(tokens), sum(calls), sum(rounds), seconds, sum(wall), sum(processor))


@dataclass(frozen=True, eq=False)
class Timed:
    """Times of one decoding method on all prompts.

    Attributes
    ----------
    first_seconds : float
        Wall time of a first run, which includes compilation.
    runs : list of Decoding
        One for each prompt.
    """

    first_seconds: float = 0.0
    runs: list[Decoding] = field(default_factory=list)

    def each(self, what: str) -> FloatArray:
        """Return an attribute of `Decoding` for each prompt."""
        return np.array([getattr(run, what) for run in self.runs], dtype=np.float64)

    def rate(self, clock: str) -> Estimate:
        """Estimate the tokens per second of a clock of `CLOCKS`."""
        return ratio(self.each("tokens"), self.each(clock))

    def speed_up(self, other: Timed, clock: str) -> Estimate:
        """Estimate the ratio of tokens per second to another method on the same prompts, paired."""
        one, two = ((timed.each("tokens"), timed.each(clock)) for timed in (self, other))
        return rate_ratio(*one, *two)

    @property
    def block_efficiency(self) -> Estimate:
        """Tokens per target call; NaN if calls are unknown."""
        return ratio(self.each("tokens"), self.each("calls"))

    def seconds_a_round(self, clock: str) -> dict[str, float]:
        """Return the seconds per round by part; all are the target's if parts are not reported."""
        rounds = self.each("rounds").sum()
        if not self.runs[0].parts:  # on a GPU the parts run asynchronously
            whole = float(self.each(clock).sum() / rounds)
            return {"draft": 0.0, "target": whole, "verification": 0.0, "rest": 0.0}
        return {part: seconds / rounds for part, seconds in sum_decodings(self.runs).parts.items()}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the sum of all parts."""
        parts = sum_decodings(self.runs).parts
        return {name: seconds / sum(parts.values()) for name, seconds in parts.items()}

    def record(self, clock: str) -> dict[str, Any]:
        """Return all results as JSON values."""
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
