"""How many tokens a second ways of decoding give, measured side by side on the same prompts.

Every way decodes every prompt, the ways in turn, so that a machine that slows down slows all of
them; the baseline runs once more before and after, which says how much it did.  Compilation and
what else a first call takes is timed apart.  Intervals treat prompts as the independent units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate, rate_ratio, ratio

if TYPE_CHECKING:
    from otlp.device import DeviceLoop

CLOCKS: dict[str, Callable[[], float]] = {"wall": perf_counter, "processor": process_time}
"""Clocks by name.  Processor time is that of all threads: right on one thread, or as a cost."""


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


Way = Callable[[IntArray, int], Decoding]
"""From a prompt and a seed to what decoding it took."""


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


@dataclass(frozen=True, eq=False)
class SideBySide:
    """All ways, and the baseline before and after.

    Attributes
    ----------
    ways : dict of Timed
    before, after : Timed
        The baseline, run by itself.
    """

    ways: dict[str, Timed]
    before: Timed
    after: Timed

    def drift(self, clock: str) -> Estimate:
        """How many times as fast the baseline was after as before: 1 on a quiet machine."""
        return self.after.speed_up(self.before, clock)


def looped(loop: DeviceLoop, tokens: int) -> Way:
    """Decode on the device, a prompt at a time; the reading of the prompt is not timed."""
    import torch

    def way(prompt: IntArray, seed: int) -> Decoding:
        numbers = torch.Generator(loop.device).manual_seed(seed)
        found = loop.decode([prompt], tokens, numbers)
        calls = float(found.calls.sum())
        times = found.seconds, found.processor_seconds
        return Decoding(found.tokens, calls, found.rounds, found.parts, *times)

    return way


def race(
    ways: Mapping[str, Way],
    baseline: str,
    prompts: Sequence[IntArray],
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> SideBySide:
    """Time all ways on all prompts.

    Parameters
    ----------
    ways : mapping of str to Way
    baseline : str
        One of them.
    prompts : sequence of ndarray of int64
    seed : int
        Prompt i is decoded with seed `seed` + i by every way.
    progress : callable
        Called with a way's name before each run.

    Raises
    ------
    InvalidInputError
        If there are no prompts, or the baseline is none of the ways.
    """
    if not prompts or baseline not in ways:
        raise InvalidInputError(
            f"there are {len(prompts)} prompts, and {baseline!r} is to be one of "
            f"{', '.join(ways)}: give prompts, and a baseline among the ways"
        )
    timed = {}
    for name, way in ways.items():
        progress(f"{name}, first run: its steps may be compiled")
        begin = perf_counter()
        # prompts of other lengths may be other shapes
        for prompt in {one.size: one for one in prompts}.values():
            way(prompt, seed)
        timed[name] = Timed(perf_counter() - begin)

    def alone() -> Timed:
        progress(baseline)
        return Timed(0.0, [ways[baseline](prompt, seed + at) for at, prompt in enumerate(prompts)])

    before, names = alone(), list(ways)
    for at, prompt in enumerate(prompts):
        turn = at % len(names)
        for name in names[turn:] + names[:turn]:
            progress(name)
            timed[name].runs.append(ways[name](prompt, seed + at))
    return SideBySide(timed, before, alone())
