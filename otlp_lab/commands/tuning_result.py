"""What ``otlp lab tune`` found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from otlp.cli.output import table
from otlp.studies.estimate import Estimate
from otlp.studies.timed import Timed
from otlp_lab.tuning.loop_costs import Bench
from otlp_lab.tuning.loop_setting import PLAIN, LoopSetting
from otlp_lab.tuning.prediction import Prediction, agreement
from otlp_lab.tuning.round_costs import RoundCosts
from otlp_lab.tuning.side_by_side import SideBySide
from otlp_lab.tuning.tuned import Tuned


def fastest(found: Sequence[Prediction], most: int) -> list[LoopSetting]:
    """So many of the best settings that draft, by prediction."""
    return [one.setting for one in found if one.setting != PLAIN][:most]


@dataclass(frozen=True)
class TuningResult:
    """What was predicted and timed for a target and a draft, by their names."""

    names: tuple[str, str]
    bench: Bench
    found: list[Prediction]
    timed: SideBySide | None
    costs: RoundCosts
    target_only: Estimate

    @property
    def ways(self) -> dict[str, Timed]:
        """What was timed, by setting."""
        return {} if self.timed is None else self.timed.ways

    def rate(self, setting: LoopSetting) -> Estimate | None:
        """Tokens a second by the clock, where it was timed."""
        way = self.ways.get(str(setting))
        return None if way is None else way.rate(self.bench.clock)

    @property
    def known(self) -> list[tuple[Prediction, float]]:
        """What was timed, and its tokens a second by the clock."""
        rates = ((one, self.rate(one.setting)) for one in self.found)
        return [(one, rate.mean) for one, rate in rates if rate is not None]

    @property
    def winner(self) -> Prediction:
        """The fastest by the clock; without one, by prediction."""
        predicted = [(one, one.tokens_per_second.mean) for one in self.found]
        return max(self.known or predicted, key=lambda one: one[1])[0]

    @property
    def title(self) -> str:
        """What was tuned."""
        texts = max(one.texts for one in self.found)
        return (
            f"{self.names[0]} / {self.names[1]} on {self.bench.target.model.device}, {texts} texts"
        )

    @property
    def tuned(self) -> Tuned:
        """The winner for whoever decodes."""
        one, measured = self.winner, self.rate(self.winner.setting)
        rates = one.tokens_per_second.mean, None if measured is None else measured.mean
        return tuned_by(self.names, self.bench, one.setting, *rates)

    def table(self) -> Table:
        """A line a setting, the best first; the winner has a star."""
        numbers = ("tokens/call", "predicted/s", "measured/s", "speed-up", "texts")
        made = table("setting", "shape", "draft T", *numbers)
        plain = self.ways.get(str(PLAIN))
        for one in self.found:
            way, drafted = self.ways.get(str(one.setting)), one.setting.draft_temperature
            clock = self.bench.clock
            made.add_row(
                f"{one.setting.algorithm}{' *' if one == self.winner else ''}",
                one.setting.shape,
                "" if drafted is None else f"{drafted:g}",
                str(one.tokens_per_call),
                one.tokens_per_second.show(1),
                way.rate(clock).show(1) if way else "",
                str(way.speed_up(plain, clock)) if way and plain else "",
                str(one.texts),
            )
        return made

    def lines(self) -> list[str]:
        """What is to be known of the times, and of what the loop does not run."""
        gain, best = self.target_only, fastest(self.found, 1)[0]
        said = [
            "tokens a call of target-only on the likeliest tree of as many tokens, over "
            f"{best}: {100 * gain.mean - 100:+.1f}% ±{50 * (gain.high - gain.low):.1f}"
        ]
        said += [
            f"{setting} was timed with steps that could not be compiled: {', '.join(steps)}"
            for setting, steps in self.bench.uncompiled.items()
        ]
        if self.timed is None:
            return [*said, "nothing was timed: the figures are predictions"]
        clock = self.bench.clock
        said.append(f"{clock} time; the baseline after over before: {self.timed.drift(clock)}")
        for name, way in self.ways.items():
            shares = ", ".join(f"{part} {share:.1%}" for part, share in way.shares.items())
            said.append(f"{name}: {shares or 'parts not known'}; first {way.first_seconds:.1f} s")
        close = self.agreement
        said.append(
            f"predicted and measured, {close['settings']} settings: rank correlation "
            f"{close['rank_correlation']:.2f}, mean error {close['mean_error']:.1%}"
        )
        return said

    @property
    def agreement(self) -> dict[str, Any]:
        """How near predictions are to what was timed."""
        return agreement([(one.tokens_per_second.mean, rate) for one, rate in self.known])

    def record(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        clock, timed = self.bench.clock, self.timed
        return {
            "clock": clock,
            "costs": {
                "plain_seconds": self.costs.plain,
                "target_seconds": dict(self.costs.target),
                "draft_seconds": self.costs.draft,
                "verification_seconds": self.costs.verification,
            },
            "predictions": [
                {
                    "branching": one.setting.branching,
                    "draft_temperature": one.setting.draft_temperature,
                    "tokens_per_call": one.tokens_per_call.record(),
                    "tokens_per_second": one.tokens_per_second.record(),
                    "texts": one.texts,
                }
                for one in self.found
            ],
            "uncompiled": self.bench.uncompiled,
            "target_only": self.target_only.record(),
            "timed": [{"name": name, **way.record(clock)} for name, way in self.ways.items()],
            "drift": None if timed is None else timed.drift(clock).record(),
            "agreement": None if timed is None else self.agreement,
        }


def tuned_by(
    names: tuple[str, str],
    bench: Bench,
    setting: LoopSetting,
    predicted: float | None = None,
    measured: float | None = None,
) -> Tuned:
    """A setting for whoever decodes: names of target and draft, tokens a second."""
    return Tuned(
        *names,
        str(bench.target.model.device),
        str(bench.target.model.dtype).removeprefix("torch."),
        bench.sampling,
        setting.algorithm,
        setting.paths,
        setting.length,
        predicted,
        measured,
        setting.branching,
        setting.draft_temperature,
    )
