"""What ``otlp tune`` found, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from otlp.cli.output import table
from otlp.decode.design import WrittenText
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tuned import Tuned
from otlp.distribution import IntArray
from otlp.studies.estimate import Estimate
from otlp.studies.loop_costs import Bench
from otlp.studies.loop_setting import PLAIN, LoopSetting
from otlp.studies.round_costs import RoundCosts
from otlp.studies.timed_loop import SideBySide
from otlp.studies.tuning import Prediction, agreement


@dataclass(frozen=True)
class TuningSource:
    """Texts of the target by the draft's temperature; the loops and the draft, if models run."""

    names: tuple[str, str]
    texts: dict[float | None, list[WrittenText]]
    bench: Bench | None = None
    draft: PromptedDraft | None = None


@dataclass(frozen=True)
class PromptedDraft:
    """The draft, to begin after each prompt at any temperature."""

    model: Model
    sampling: Sampling
    prompts: Sequence[IntArray]

    def at(self, temperature: float | None) -> Callable[[int], Model]:
        """From the number of a prompt to the draft at its end."""

        def start(prompt: int) -> Model:
            self.model.sampling = self.sampling.at(temperature)
            self.model.start(self.prompts[prompt])
            return self.model

        return start


def fastest(found: Sequence[Prediction], most: int) -> list[Prediction]:
    """So many of the best that draft, by prediction."""
    return [one for one in found if one.setting != PLAIN][:most]


@dataclass(frozen=True)
class TuningResult:
    """What was predicted and timed, and how it is shown."""

    source: TuningSource
    found: list[Prediction]
    timed: SideBySide | None
    costs: RoundCosts
    elsewhere: bool
    clock: str
    best: LoopSetting
    others: dict[str, Estimate]

    @property
    def winner(self) -> Prediction:
        """The fastest by the clock; without one, by prediction."""
        if self.timed is None:
            return max(self.found, key=lambda one: one.tokens_per_second.mean)
        ways = self.timed.ways
        known = [one for one in self.found if str(one.setting) in ways]
        return max(known, key=lambda one: ways[str(one.setting)].rate(self.clock).mean)

    @property
    def where(self) -> tuple[str, str]:
        """Device and type of the models."""
        bench = self.source.bench
        if bench is None:
            return "another", "unknown"
        device, dtype = str(bench.target.device), str(bench.target.dtype)
        return "another" if self.elsewhere else device, dtype.removeprefix("torch.")

    @property
    def title(self) -> str:
        """What was tuned."""
        target, draft = self.source.names
        return f"{target} / {draft} on {self.where[0]}, {len(self.source.texts[None])} texts"

    def tuned(self, sampling: Sampling) -> Tuned:
        """The winner for whoever decodes."""
        winner, timed = self.winner, self.timed
        one = winner.setting
        measured = None if timed is None else timed.ways[str(one)].rate(self.clock).mean
        return Tuned(
            *self.source.names,
            *self.where,
            sampling,
            one.algorithm,
            one.paths,
            one.length,
            winner.tokens_per_second.mean,
            measured,
            one.branching,
            one.draft_temperature,
        )

    @property
    def uncompiled(self) -> dict[str, list[str]]:
        """Steps that were timed as they are, though they were to be compiled."""
        return {} if self.source.bench is None else self.source.bench.uncompiled

    def speed_up(self, setting: LoopSetting) -> str:
        """Over plain decoding of the same prompts, where both were timed."""
        ways = {} if self.timed is None else self.timed.ways
        if str(setting) not in ways:
            return ""
        return str(ways[str(setting)].speed_up(ways[str(PLAIN)], self.clock))

    def table(self) -> Table:
        """A line a setting, the best first; the winner has a star."""
        heads = (
            "shape",
            "draft T",
            "tokens/call",
            "predicted/s",
            "measured/s",
            "speed-up",
            "texts",
        )
        made = table("setting", *heads)
        ways = {} if self.timed is None else self.timed.ways
        for one in self.found:
            way, drafted = ways.get(str(one.setting)), one.setting.draft_temperature
            made.add_row(
                f"{one.setting.algorithm}{' *' if one == self.winner else ''}",
                one.setting.shape,
                "" if drafted is None else f"{drafted:g}",
                str(one.tokens_per_call),
                one.tokens_per_second.show(1),
                "" if way is None else way.rate(self.clock).show(1),
                self.speed_up(one.setting),
                str(one.texts),
            )
        return made

    def lines(self) -> list[str]:
        """What is to be known of the times, and of rules that the loop does not run."""
        others = "; ".join(f"{name} {100 * one.mean - 100:+.1f}% ±{50 * (one.high - one.low):.1f}"
                           for name, one in self.others.items())  # fmt: skip
        said = [f"tokens a call of other rules on as many tokens, over {self.best}: {others}"]
        said += [
            f"{setting} was timed with steps that could not be compiled: {', '.join(steps)}"
            for setting, steps in self.uncompiled.items()
        ]
        if self.timed is None:
            return [*said, "nothing was timed: the figures are predictions"]
        ways = self.timed.ways
        said += [
            f"{self.clock} time; the baseline after over before: {self.timed.drift(self.clock)}"
        ]
        for name, way in ways.items():
            shares = ", ".join(f"{part} {share:.1%}" for part, share in way.shares.items())
            energy = (
                "energy not known"
                if way.joules is None
                else (f"{way.joules / sum(way.tokens):.3g} J a token")
            )
            said.append(
                f"{name}: {shares or 'parts not known'}; {energy}; first {way.first_seconds:.1f} s"
            )
        close = self.agreement
        said.append(
            f"predicted and measured, {close['settings']} settings: rank correlation "
            f"{close['rank_correlation']:.2f}, mean error {close['mean_error']:.1%}"
        )
        return said

    @property
    def agreement(self) -> dict[str, Any]:
        """How near predictions are to what was timed."""
        assert self.timed is not None
        ways = self.timed.ways
        pairs = [
            (one.tokens_per_second.mean, ways[str(one.setting)].rate(self.clock).mean)
            for one in self.found
            if str(one.setting) in ways
        ]
        return agreement(pairs)

    def record(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        timed = self.timed
        return {
            "clock": self.clock,
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
            "uncompiled": self.uncompiled,
            "other_rules": {name: one.record() for name, one in self.others.items()},
            "timed": []
            if timed is None
            else [way.record(self.clock) for way in timed.ways.values()],
            "drift": None if timed is None else timed.drift(self.clock).record(),
            "agreement": None if timed is None else self.agreement,
        }
