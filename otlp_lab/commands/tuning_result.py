"""The result of ``otlp lab tune``, with its table and JSON."""

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
    """Return the `most` best predicted settings that draft."""
    return [one.setting for one in found if one.setting != PLAIN][:most]


@dataclass(frozen=True)
class TuningResult:
    """Predictions and times for a target and a draft."""

    names: tuple[str, str]
    bench: Bench
    found: list[Prediction]
    timed: SideBySide | None
    costs: RoundCosts
    target_only: Estimate

    @property
    def times(self) -> dict[str, Timed]:
        """Measured times by setting."""
        return {} if self.timed is None else self.timed.ways

    def rate(self, setting: LoopSetting) -> Estimate | None:
        """Return the measured tokens per second of a setting; None if not timed."""
        timed = self.times.get(str(setting))
        return None if timed is None else timed.rate(self.bench.clock)

    @property
    def known(self) -> list[tuple[Prediction, float]]:
        """Timed predictions, with measured tokens per second."""
        rates = ((one, self.rate(one.setting)) for one in self.found)
        return [(one, rate.mean) for one, rate in rates if rate is not None]

    @property
    def winner(self) -> Prediction:
        """The fastest timed setting; if none is timed, the fastest predicted setting."""
        predicted = [(one, one.tokens_per_second.mean) for one in self.found]
        return max(self.known or predicted, key=lambda one: one[1])[0]

    @property
    def title(self) -> str:
        """Models, device and number of texts."""
        texts = max(one.texts for one in self.found)
        return (
            f"{self.names[0]} / {self.names[1]} on {self.bench.target.model.device}, {texts} texts"
        )

    @property
    def tuned(self) -> Tuned:
        """The winner, for decoding."""
        one, measured = self.winner, self.rate(self.winner.setting)
        rates = one.tokens_per_second.mean, None if measured is None else measured.mean
        return tuned_by(self.names, self.bench, one.setting, *rates)

    def table(self) -> Table:
        """Return a table with one line per setting, best first; * marks the winner."""
        numbers = ("tokens/call", "predicted/s", "measured/s", "speed-up", "texts")
        made = table("setting", "shape", "draft T", *numbers)
        plain = self.times.get(str(PLAIN))
        for one in self.found:
            timed, drafted = self.times.get(str(one.setting)), one.setting.draft_temperature
            clock = self.bench.clock
            made.add_row(
                f"{one.setting.algorithm}{' *' if one == self.winner else ''}",
                one.setting.shape,
                "" if drafted is None else f"{drafted:g}",
                str(one.tokens_per_call),
                one.tokens_per_second.show(1),
                timed.rate(clock).show(1) if timed else "",
                str(timed.speed_up(plain, clock)) if timed and plain else "",
                str(one.texts),
            )
        return made

    def lines(self) -> list[str]:
        """Return notes on the times, and on target-only, which the loop does not run."""
        gain, best = self.target_only, fastest(self.found, 1)[0]
        notes = [
            "tokens per call of target-only on the most likely tree of the same size, relative to "
            f"{best}: {100 * gain.mean - 100:+.1f}% ±{50 * (gain.high - gain.low):.1f}"
        ]
        notes += [
            f"{setting} was timed with steps that could not be compiled: {', '.join(steps)}"
            for setting, steps in self.bench.uncompiled.items()
        ]
        if self.timed is None:
            return [*notes, "no setting was timed: the numbers are predictions"]
        clock = self.bench.clock
        notes.append(f"{clock} time; baseline after/before: {self.timed.drift(clock)}")
        for name, one in self.times.items():
            shares = ", ".join(f"{part} {share:.1%}" for part, share in one.shares.items())
            notes.append(f"{name}: {shares or 'parts unknown'}; first {one.first_seconds:.1f} s")
        close = self.agreement
        notes.append(
            f"predicted and measured, {close['settings']} settings: rank correlation "
            f"{close['rank_correlation']:.2f}, mean error {close['mean_error']:.1%}"
        )
        return notes

    @property
    def agreement(self) -> dict[str, Any]:
        """Agreement of predicted and measured rates."""
        return agreement([(one.tokens_per_second.mean, rate) for one, rate in self.known])

    def record(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values."""
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
            "timed": [{"name": name, **one.record(clock)} for name, one in self.times.items()],
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
    """Return a setting for decoding, with the names of target and draft and the rates."""
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
