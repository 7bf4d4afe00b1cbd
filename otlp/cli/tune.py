"""``otlp tune``: the setting that decodes most tokens a second, predicted and then timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from otlp.cli.options import (
    ListOf,
    OutputFile,
    draft_temperature_option,
    figure_option,
    json_option,
    length_option,
    open_capture,
    sampling_options,
    seed_option,
    temperature_option,
    tokens_option,
)
from otlp.cli.output import console, note, progress, show, table, warn, write_result, write_whole
from otlp.cli.prompts import Models, encode_prompts, prompt_options
from otlp.decode.design import WrittenText
from otlp.decode.drafting import prefix_tree
from otlp.decode.models.loading import TRAINED_PAIR
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tuned import Tuned
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate
from otlp.studies.figures import draw_tuning
from otlp.studies.loop_costs import Bench, measure_costs
from otlp.studies.timed_loop import CLOCKS, SideBySide
from otlp.studies.trees import captured_texts, drafted_anew, long_texts, write_text
from otlp.studies.tuning import (
    PLAIN,
    LoopSetting,
    Prediction,
    RoundCosts,
    agreement,
    grid,
    other_rules,
    predict,
    read_costs,
)


class TreeName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A prefix tree such as 3-2-1, the children of each token by depth."""

    name = "tree"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Convert depth by depth, and refuse a tree that is too large."""
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[1-9]\d{0,5}(-[1-9]\d{0,5})*", value, re.ASCII):
            self.fail(f"{value!r} is no tree: give children by depth, such as 3-2-1", param, ctx)
        branching = tuple(map(int, value.split("-")))
        try:
            prefix_tree(branching)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)
        return branching


@click.command(
    epilog="""\b
Examples:
  otlp tune                                     the trained pair, on this device
  otlp tune my/model my/small-model --device cuda --dtype bfloat16 --prompts prompts.txt
  otlp tune --paths 1,2,4,8 --length 1,2,4,8 --check 20 --figure tune.svg
  otlp tune --trees 2-2-1,4-2-1-1 --draft-temperature 0.8,1,1.2
  otlp tune --from-capture mine.safetensors --costs h100.json       for a device that is not here
"""
)
@click.argument("target", default=TRAINED_PAIR[0])
@click.argument("draft", default=TRAINED_PAIR[1])
@prompt_options(limit=8)
@click.option(
    "--paths", type=ListOf(click.IntRange(1)), default="1,2,4", help="Drafted paths a round."
)
@length_option("1,2,3,4,6")
@click.option(
    "--trees",
    type=ListOf(TreeName()),
    default="2-2,2-2-1,3-2-1-1",
    help="Prefix trees, by the children of each token at each depth.",
)
@temperature_option()
@draft_temperature_option(ListOf(float))
@sampling_options
@click.option(
    "--text", type=click.IntRange(2), default=96, help="Tokens of each text that values settings."
)
@tokens_option(96)
@click.option("--check", type=click.IntRange(0), default=3, help="How many of the best to time.")
@click.option("--compile/--no-compile", "compiled", default=True, help="Compile the loop's steps.")
@click.option(
    "--clock", type=click.Choice(list(CLOCKS)), default="wall", help="What times are read from."
)
@seed_option()
@click.option(
    "--from-capture", "capture", type=click.Path(), help="Take its texts; the models are not run."
)
@click.option("--costs", type=click.Path(), help="Take a cost curve (JSON), as of another device.")
@click.option("--config", type=OutputFile(), default="tuned.json", help="Write the winner here.")
@json_option("Write all that was found.")
@figure_option("Draw predictions, times and the cost curve.")
def command(
    models: Models,
    paths: tuple[int, ...],
    length: tuple[int, ...],
    trees: tuple[tuple[int, ...], ...],
    temperature: float,
    draft_temperature: tuple[float, ...] | None,
    sampling_top_k: int | None,
    sampling_top_p: float,
    text: int,
    tokens: int,
    check: int,
    compiled: bool,
    clock: str,
    seed: int,
    capture: str | None,
    costs: str | None,
    config: Path,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    """Find the setting that decodes most tokens a second for TARGET with DRAFT.

    The target writes text after each prompt, and text renewal says how many tokens a call each
    setting would give on it. A few settings are timed to learn what rounds cost here. Both make the
    prediction, which is kept; the best are then timed beside plain decoding on the same prompts,
    and the winner is written to a file that otlp decode and generate read. Every setting keeps the
    target's distribution.
    """
    sampling = Sampling(temperature, sampling_top_k, sampling_top_p)
    drafted = dict.fromkeys(None if one == temperature else one for one in draft_temperature or ())
    for one in drafted:
        sampling.at(one)
    settings = grid(paths, length, trees, drafted or [None])
    longest = max(one.length for one in settings)
    if text <= longest:
        raise InvalidInputError(
            f"--text is {text} and the longest path {longest}: write texts longer than that"
        )
    if capture is not None and costs is None:
        raise InvalidInputError(
            "a capture says nothing of time: give a cost curve with --costs, or leave the capture "
            "out"
        )
    curve = None if costs is None else RoundCosts.of_curve(read_costs(costs))
    if capture is not None:
        source = _captured(capture, sampling, drafted, longest)
    else:
        source = _written(models, sampling, drafted, text, longest, tokens, compiled, clock, seed)
    content = {
        **models.said(),
        "temperature": temperature,
        "draft_temperature": draft_temperature,
        "sampling_top_k": sampling_top_k,
        "sampling_top_p": sampling_top_p,
        "capture": capture,
    }

    def keep(result: _Result) -> None:
        text = result.tuned(sampling).to_json()
        write_whole(config, lambda path: path.write_bytes(text.encode()))
        write_result(json_path, "tune", {**content, **result.record()})

    result = _predicted(source, settings, curve, check, clock, seed)
    keep(result)
    if source.bench is not None and curve is None and check:
        warn(f"predicted best, kept in {config}: {result.winner.setting}; the best are timed now")
        with progress("timing", 0) as step:
            best = [one.setting for one in _best(result.found, check)]
            result = replace(result, timed=source.bench.race(best, progress=step))
        keep(result)
    title = f"{result.title}, T = {temperature:g}"
    if figure_path:
        parts = result.found, result.timed, result.costs, clock, title
        write_whole(figure_path, lambda path: draw_tuning(path, *parts))
    console.print(f"{title}\n")
    show(result.table())
    console.print()
    for line in result.lines():
        console.print(line)
    note(f"written to {config}")


@dataclass(frozen=True)
class _Source:
    """Texts of the target by the draft's temperature; the loops and the draft, if models run."""

    names: tuple[str, str]
    texts: dict[float | None, list[WrittenText]]
    bench: Bench | None = None
    draft: _Draft | None = None


def _captured(
    capture: str, sampling: Sampling, drafted: Iterable[float | None], longest: int
) -> _Source:
    rows = open_capture(capture)
    texts = {
        one: long_texts(
            list(captured_texts(rows, sampling.temperature, sampling.top_k, one)), longest, 2, warn
        )
        for one in (None, *drafted)
    }
    return _Source((rows.target_model, rows.draft_model), texts)


def _predicted(
    source: _Source,
    settings: Sequence[LoopSetting],
    curve: RoundCosts | None,
    check: int,
    clock: str,
    seed: int,
) -> _Result:
    """Predict, by costs that are measured unless they are given; say what other rules give."""
    bench, elsewhere = source.bench, curve is not None
    with progress("tokens a call", 0) as step:

        def price(gains: Mapping[LoopSetting, Estimate]) -> RoundCosts:
            nonlocal curve
            if curve is None:
                assert bench is not None
                curve = measure_costs(bench, settings, gains, step, warn)
            return curve

        found = predict(source.texts, settings, price, keep=check, progress=step)
    assert curve is not None
    best = _best(found, 1)[0].setting
    with progress("other rules", None):
        own, rng = source.texts[best.draft_temperature], np.random.default_rng(seed)
        draft = source.draft.at(best.draft_temperature) if source.draft else None
        others = other_rules(best, own, rng, draft)
    return _Result(source, found, None, curve, elsewhere, clock, best, others)


def _written(
    models: Models,
    sampling: Sampling,
    drafted: Iterable[float | None],
    text: int,
    longest: int,
    tokens: int,
    compiled: bool,
    clock: str,
    seed: int,
) -> _Source:
    """Let the target write."""
    prompts = models.texts()
    draft, target = models.open(sampling)
    encoded = encode_prompts(target, prompts)
    from otlp.device import Llama

    if not hasattr(draft, "model"):
        raise InvalidInputError(
            f"the draft {models.draft!r:.60} is no network: the loop on the device takes two "
            "networks; otlp decode takes every draft"
        )
    pair = Llama(target.model), Llama(draft.model)
    texts: dict[float | None, list[WrittenText]] = {None: []}
    with progress("writing text", len(encoded)) as step:
        for index, prompt in enumerate(encoded):
            rng = np.random.default_rng([seed, index])
            texts[None].append(write_text(draft, target, prompt, text, rng))
            step("writing text")
    begun = [prompt for prompt, one in zip(encoded, texts[None], strict=True) if len(one) > longest]
    texts[None] = long_texts(texts[None], longest, 2, warn)
    own = _Draft(draft, sampling, begun)
    for one in drafted:
        start = own.at(one)
        texts[one] = [drafted_anew(written, start(at)) for at, written in enumerate(texts[None])]
    bench = Bench(*pair, sampling, encoded, tokens, compiled, clock, seed, target.ends)
    return _Source((models.target, models.draft), texts, bench, own)


@dataclass(frozen=True)
class _Draft:
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


def _best(found: Sequence[Prediction], most: int) -> list[Prediction]:
    return [one for one in found if one.setting != PLAIN][:most]


@dataclass(frozen=True)
class _Result:
    """What was predicted and timed, and how it is shown."""

    source: _Source
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
