"""Tokens per second of ways of decoding, measured side by side on the same prompts.

Every way decodes every prompt, the ways in turn, so that a slowdown of the machine affects all
ways.  The baseline runs once more before and after, to measure this slowdown.  Compilation and
other costs of a first call are timed separately.  Prompts are the independent units of intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from otlp.decode.loop import decode
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.studies.decoding import Setting, whole_rounds
from otlp.studies.estimate import Estimate
from otlp.studies.timed import Decoding, Timed
from otlp_lab.tuning.loop_setting import LoopSetting

if TYPE_CHECKING:
    from otlp.device import DeviceLoop

CLOCKS: dict[str, Callable[[], float]] = {"wall": perf_counter, "processor": process_time}
"""Clocks by name.  Processor time is the sum over threads: exact on one thread, else a cost."""


Way = Callable[[IntArray, int], Decoding]
"""Decodes a prompt with a seed, and returns the counts and times."""


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Times of all ways, and of the baseline before and after.

    Attributes
    ----------
    ways : dict of Timed
    before, after : Timed
        The baseline, run separately.
    """

    ways: dict[str, Timed]
    before: Timed
    after: Timed

    def drift(self, clock: str) -> Estimate:
        """Estimate the ratio of baseline speeds after and before: 1 on a quiet machine."""
        return self.after.speed_up(self.before, clock)


def loop_way(loop: DeviceLoop, tokens: int) -> Way:
    """Return the way of a device loop, one prompt at a time; reading the prompt is not timed."""
    import torch

    def way(prompt: IntArray, seed: int) -> Decoding:
        numbers = torch.Generator(loop.device).manual_seed(seed)
        found = loop.decode([prompt], tokens, numbers)
        calls = float(found.calls.sum())
        times = found.seconds, found.processor_seconds
        return Decoding(found.tokens, calls, found.rounds, found.parts, *times)

    return way


def round_way(
    draft: Model, target: Model, setting: LoopSetting, sampling: Sampling, tokens: int
) -> Way:
    """Return the way of `otlp.decode` for any draft; wall time without reading the prompt."""
    named = Setting(setting.algorithm, 1, 1, branching=setting.branching)
    drafting, verification = named.drafting, named.verification

    def way(prompt: IntArray, seed: int) -> Decoding:
        draft.sampling, target.sampling = sampling.at(setting.draft_temperature), sampling
        rng = np.random.default_rng(seed)
        how: dict[str, Any] = {"draft": draft, "drafting": drafting, "verification": verification}
        (text,) = decode(target, [prompt], tokens, rng, **how)
        return whole_rounds(0, seed, text, target.ends).took

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
        One of `ways`.
    prompts : sequence of ndarray of int64
    seed : int
        Prompt i is decoded with seed `seed` + i by every way.
    progress : callable
        Called with a way's name before each run.

    Raises
    ------
    InvalidInputError
        If `prompts` is empty, or `baseline` is not one of `ways`.
    """
    if not prompts or baseline not in ways:
        raise InvalidInputError(
            f"prompts must not be empty and baseline must be one of {', '.join(ways)}; got "
            f"{len(prompts)} prompts and baseline {baseline!r}"
        )
    timed = {}
    for name, way in ways.items():
        progress(f"{name}, first run: its steps may be compiled")
        begin = perf_counter()
        # Prompts of different lengths may need different compiled shapes.
        for prompt in {one.size: one for one in prompts}.values():
            way(prompt, seed)
        timed[name] = Timed(perf_counter() - begin)

    def time_baseline() -> Timed:
        progress(baseline)
        return Timed(0.0, [ways[baseline](prompt, seed + at) for at, prompt in enumerate(prompts)])

    before, names = time_baseline(), list(ways)
    for at, prompt in enumerate(prompts):
        turn = at % len(names)
        for name in names[turn:] + names[:turn]:
            progress(name)
            timed[name].runs.append(ways[name](prompt, seed + at))
    return SideBySide(timed, before, time_baseline())
