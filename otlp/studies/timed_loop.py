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

from otlp.decode.models.model import Sampling
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.energy import joules
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
        Seconds of all rounds, or of the whole call: see `whole`.
    """

    tokens: int
    calls: float
    rounds: int
    parts: dict[str, float]
    wall: float
    processor: float


Way = Callable[[IntArray, int], Decoding]
"""From a prompt and a seed to what decoding it took."""


@dataclass(eq=False)
class Timed:
    """One way of decoding, timed on all prompts.

    Attributes
    ----------
    name : str
    tokens, calls, rounds, wall, processor : list of float
        For each prompt.
    parts : dict of list of float
        Seconds of each part for each prompt; none where the way does not say.
    first_seconds : float
        Wall time of the run before, with compilation.
    joules : float or None
        Of all runs; None if the machine does not say.
    """

    name: str
    tokens: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    first_seconds: float = 0.0
    joules: float | None = 0.0

    def rate(self, clock: str) -> Estimate:
        """Tokens a second of a clock of `CLOCKS`."""
        return ratio(np.array(self.tokens), self._seconds(clock))

    def speed_up(self, other: Timed, clock: str) -> Estimate:
        """Tokens a second over those of another way on the same prompts, paired."""
        return rate_ratio(
            np.array(self.tokens),
            self._seconds(clock),
            np.array(other.tokens),
            other._seconds(clock),
        )

    @property
    def block_efficiency(self) -> Estimate:
        """Tokens a target call; NaN where calls are unknown."""
        return ratio(np.array(self.tokens), np.array(self.calls))

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in their sum."""
        total = sum(map(sum, self.parts.values()))
        return {name: sum(values) / total for name, values in self.parts.items()}

    def record(self, clock: str) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {
            "name": self.name,
            "tokens_per_second": self.rate(clock).record(),
            "block_efficiency": self.block_efficiency.record(),
            "wall_seconds": self.wall,
            "processor_seconds": self.processor,
            "tokens": self.tokens,
            "shares": self.shares,
            "first_seconds": self.first_seconds,
            "joules": self.joules,
        }

    def _seconds(self, clock: str) -> FloatArray:
        return np.array(self.wall if clock == "wall" else self.processor)


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


def whole(way: Way) -> Way:
    """Time whole calls, the reading of the prompt included."""

    def timed(prompt: IntArray, seed: int) -> Decoding:
        wall, processor = perf_counter(), process_time()
        found = way(prompt, seed)
        return found._replace(wall=perf_counter() - wall, processor=process_time() - processor)

    return timed


def generated(model: Any, tokens: int, sampling: Sampling, **options: Any) -> Way:
    """Decode by ``generate`` of transformers; `options` may name an assistant or prompt lookup.

    End tokens are suppressed up to the wanted length, so that all ways decode as much.  Whole calls
    are timed.
    """
    import torch

    wanted: dict[str, Any] = {"do_sample": sampling.temperature > 0.0, "top_p": sampling.top_p}
    wanted |= {"temperature": sampling.temperature or 1.0, "top_k": sampling.top_k or 0}

    def way(prompt: IntArray, seed: int) -> Decoding:
        torch.manual_seed(seed)
        ids = torch.as_tensor(prompt, device=model.device)[None]
        with torch.inference_mode():
            text = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                pad_token_id=0,
                **(wanted if wanted["do_sample"] else {"do_sample": False}),
                **options,
            )
        return Decoding(int(text.shape[1] - prompt.size), float("nan"), 0, {}, 0.0, 0.0)

    return whole(way)


def race(
    ways: Mapping[str, Way],
    baseline: str,
    prompts: Sequence[IntArray],
    *,
    seed: int = 0,
    repeats: int = 1,
    progress: Callable[[str], None] | None = None,
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
    repeats : int
        How often; a prompt counts for the sum.
    progress : callable, optional
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
    say = progress or (lambda name: None)
    timed = {name: Timed(name) for name in ways}
    for name, way in ways.items():
        say(f"{name}, first run: its steps may be compiled")
        begin = perf_counter()
        # prompts of other lengths may be other shapes
        for prompt in {one.size: one for one in prompts}.values():
            way(prompt, seed)
        timed[name].first_seconds = perf_counter() - begin

    def pass_of(found: Timed, which: str) -> None:
        say(which)
        for at, prompt in enumerate(prompts):
            _add(found, at, prompts, _timed(ways[which], prompt, seed + at))

    before, after = Timed(baseline), Timed(baseline)
    pass_of(before, baseline)
    names = list(ways)
    for repeat in range(repeats):
        for at, prompt in enumerate(prompts):
            turn = (at + repeat) % len(names)
            for name in names[turn:] + names[:turn]:
                say(name)
                _add(timed[name], at, prompts, _timed(ways[name], prompt, seed + at))
    pass_of(after, baseline)
    return SideBySide(timed, before, after)


def _timed(way: Way, prompt: IntArray, seed: int) -> tuple[Decoding, float | None]:
    before = joules()
    found = way(prompt, seed)
    after = joules()
    known = before is not None and after is not None and after >= before
    return found, after - before if known else None  # type: ignore[operator]


def _add(
    timed: Timed, at: int, prompts: Sequence[IntArray], run: tuple[Decoding, float | None]
) -> None:
    found, energy = run
    for name in ("tokens", "calls", "rounds", "wall", "processor"):
        own = getattr(timed, name)
        own += [0.0] * (len(prompts) - len(own))
        own[at] += getattr(found, name)
    for part, seconds in found.parts.items():
        own = timed.parts.setdefault(part, [0.0] * len(prompts))
        own[at] += seconds
    if energy is None or timed.joules is None:
        timed.joules = None
    else:
        timed.joules += energy
