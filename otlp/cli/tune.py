"""``otlp tune``: the setting that decodes most tokens a second, predicted and then timed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

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
from otlp.cli.output import console, note, progress, show, warn, write_result, write_whole
from otlp.cli.prompts import Models, encode_prompts, prompt_options
from otlp.cli.tuning_result import PromptedDraft, TuningResult, TuningSource, fastest
from otlp.decode.design import WrittenText
from otlp.decode.drafting import prefix_tree
from otlp.decode.models.loading import TRAINED_PAIR
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.studies.estimate import Estimate
from otlp.studies.figures import draw_tuning
from otlp.studies.loop_costs import Bench, measure_costs
from otlp.studies.loop_setting import LoopSetting, grid
from otlp.studies.round_costs import RoundCosts, read_costs
from otlp.studies.timed_loop import CLOCKS
from otlp.studies.trees import captured_texts, drafted_anew, long_texts, write_text
from otlp.studies.tuning import other_rules, predict


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
    curve = None if costs is None else RoundCosts.of_curve(read_costs(costs))
    if capture is not None:
        source = _captured(capture, sampling, drafted, longest, curve)
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

    def keep(result: TuningResult) -> None:
        text = result.tuned(sampling).to_json()
        write_whole(config, lambda path: path.write_bytes(text.encode()))
        write_result(json_path, "tune", {**content, **result.record()})

    result = _predicted(source, settings, curve, check, clock, seed)
    keep(result)
    if source.bench is not None and curve is None and check:
        warn(f"predicted best, kept in {config}: {result.winner.setting}; the best are timed now")
        with progress("timing", 0) as step:
            best = [one.setting for one in fastest(result.found, check)]
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


def _captured(
    capture: str,
    sampling: Sampling,
    drafted: Iterable[float | None],
    longest: int,
    curve: RoundCosts | None,
) -> TuningSource:
    if curve is None:
        raise InvalidInputError(
            "a capture says nothing of time: give a cost curve with --costs, or leave the capture "
            "out"
        )
    rows = open_capture(capture)
    texts = {
        one: long_texts(
            list(captured_texts(rows, sampling.temperature, sampling.top_k, one)), longest, 2, warn
        )
        for one in (None, *drafted)
    }
    return TuningSource((rows.target_model, rows.draft_model), texts)


def _predicted(
    source: TuningSource,
    settings: Sequence[LoopSetting],
    curve: RoundCosts | None,
    check: int,
    clock: str,
    seed: int,
) -> TuningResult:
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
    best = fastest(found, 1)[0].setting
    with progress("other rules", None):
        own, rng = source.texts[best.draft_temperature], np.random.default_rng(seed)
        begun = None
        if source.draft is not None:
            start = source.draft.at(best.draft_temperature)

            def begun(text: int) -> tuple[Model, IntArray]:
                return start(text), own[text].tokens

        others = other_rules(best, own, rng, begun)
    return TuningResult(source, found, None, curve, elsewhere, clock, best, others)


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
) -> TuningSource:
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
    own = PromptedDraft(draft, sampling, begun)
    for one in drafted:
        start = own.at(one)
        texts[one] = [drafted_anew(written, start(at)) for at, written in enumerate(texts[None])]
    bench = Bench(*pair, sampling, encoded, tokens, compiled, clock, seed, target.ends)
    return TuningSource((models.target, models.draft), texts, bench, own)
