"""Device loops for settings, the costs of their rounds, and their measured speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.studies.estimate import Estimate
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting
from otlp_lab.tuning.round_costs import RoundCosts, corners, may_win
from otlp_lab.tuning.side_by_side import CLOCKS, SideBySide, Way, loop_way, race, round_way

if TYPE_CHECKING:
    from otlp.device import DeviceLoop, Llama


@dataclass(frozen=True, eq=False)
class Bench:
    """Models and options for timing settings.

    Attributes
    ----------
    target, draft : Llama
        Networks, or two models of `otlp.decode` if the draft is not a network.  In the second case
        `otlp.decode` runs the rounds and nothing is compiled.
    sampling : Sampling
    prompts : sequence of ndarray of int64
    tokens : int
        Number of tokens decoded after each prompt.
    compiled : bool
        Whether the steps of the loop are compiled.
    clock : str
        One of `otlp_lab.tuning.side_by_side.CLOCKS`.
    seed : int
    ends : tuple of int
        Tokens that end a text.
    """

    target: Llama | HuggingFaceModel
    draft: Llama | Model
    sampling: Sampling
    prompts: Sequence[IntArray]
    tokens: int
    compiled: bool
    clock: str
    seed: int = 0
    ends: tuple[int, ...] = ()
    _loops: dict[LoopSetting, DeviceLoop] = field(default_factory=dict, init=False, repr=False)

    @property
    def uncompiled(self) -> dict[str, list[str]]:
        """Steps that could not be compiled and were timed without compilation, by setting."""
        found = {str(setting): loop.uncompiled for setting, loop in self._loops.items()}
        return {setting: steps for setting, steps in found.items() if steps}

    def way(self, setting: LoopSetting) -> Way:
        """Return the way to decode with a setting; compiled once, with caches for all prompts."""
        from otlp.device import DeviceLoop, IidRounds, Llama, LoopModels

        if isinstance(self.draft, Model):
            assert isinstance(self.target, HuggingFaceModel)
            return round_way(self.draft, self.target, setting, self.sampling, self.tokens)
        assert isinstance(self.target, Llama)
        if setting not in self._loops:
            longest = max(prompt.size for prompt in self.prompts)
            models = LoopModels(self.target, sampling=self.sampling)
            if setting.branching:
                models = replace(
                    models, draft=self.draft, draft_temperature=setting.draft_temperature
                )
            self._loops[setting] = DeviceLoop(
                IidRounds(models, setting.branching or None, clock=CLOCKS[self.clock]),
                ends=self.ends,
                slots=longest + self.tokens + setting.length + 1,
                compiled=self.compiled,
            )
        return loop_way(self._loops[setting], self.tokens)

    def race(
        self, settings: Sequence[LoopSetting], progress: Callable[[str], None] = lambda name: None
    ) -> SideBySide:
        """Time settings and plain decoding side by side."""
        ways = {str(one): self.way(one) for one in dict.fromkeys([PLAIN, *settings])}
        return race(ways, str(PLAIN), self.prompts, seed=self.seed, progress=progress)


def measure_costs(
    bench: Bench,
    settings: Sequence[LoopSetting],
    gains: Mapping[LoopSetting, Estimate],
    progress: Callable[[str], None] = lambda words: None,
    tell: Callable[[LoopSetting, float, float], None] = lambda one, seconds, rate: None,
) -> RoundCosts:
    """Measure the costs of rounds on a few settings; see `corners` of `round_costs`.

    These settings are compiled and timed on one prompt, in ascending order of drafted tokens, as
    long as a setting with more drafted tokens might still be the fastest.  They are then timed side
    by side.

    Parameters
    ----------
    bench : Bench
    settings : sequence of LoopSetting
        Settings whose costs are fitted.
    gains : mapping of LoopSetting to Estimate
        Tokens per call of each setting and of `PLAIN`.
    progress : callable
        Called before each run.
    tell : callable
        Called for each setting timed on one prompt, with its seconds per round and an approximate
        number of tokens per second.
    """
    known: dict[LoopSetting, float] = {}
    for one in [PLAIN, *corners(settings)]:
        more = [other for other in settings if other.nodes >= one.nodes]
        if known and not any(may_win(other, gains, known) for other in more):
            break
        known[one] = _seconds_of_a_round(bench, one, progress)
        if one in gains:
            tell(one, known[one], gains[one].mean / known[one])
    found = bench.race(list(known), progress).ways
    rounds = {one: found[str(one)].seconds_a_round(bench.clock) for one in known}
    return RoundCosts.fitted(sum(rounds.pop(PLAIN).values()), rounds)


def _seconds_of_a_round(bench: Bench, setting: LoopSetting, say: Callable[[str], None]) -> float:
    """Measure the seconds per round on one prompt, after a first run that compiles."""
    way, prompt = bench.way(setting), bench.prompts[0]
    say(f"{setting}, first run: its steps may be compiled")
    way(prompt, bench.seed)
    say(f"{setting}, one prompt")
    found = way(prompt, bench.seed)
    seconds: float = getattr(found, bench.clock)
    return seconds / found.rounds
