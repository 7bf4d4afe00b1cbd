"""``otlp lab tune``: predict and time settings, and choose the most tokens per second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import console, note, progress, show, warn, write_result, write_whole
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import Models, prompt_options
from otlp.data.sampling_cuts import SAMPLING
from otlp.decode.drafting import prefix_tree
from otlp.decode.models.copying import network_and_shares
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.loading import TRAINED_PAIR
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp_lab.commands.target_texts import target_texts
from otlp_lab.commands.tuning_result import TuningResult, fastest, tuned_by
from otlp_lab.tuning.loop_costs import Bench, measure_costs
from otlp_lab.tuning.loop_setting import LoopSetting, grid
from otlp_lab.tuning.prediction import TunedTexts, predict, target_only_gain
from otlp_lab.tuning.side_by_side import CLOCKS
from otlp_lab.tuning.tuned import Tuned

LEAST = 2
"""Minimum number of texts."""


def read_tree(name: str) -> tuple[int, ...]:
    """Read a tree as children per token at each depth, such as 3-2-1; refuse too large trees."""
    if not re.fullmatch(r"[1-9]\d{0,5}(-[1-9]\d{0,5})*", name, re.ASCII):
        raise click.BadParameter(f"tree must be children by depth, such as 3-2-1, got {name!r}")
    branching = tuple(map(int, name.split("-")))
    try:
        prefix_tree(branching)
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from error
    return branching


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab tune                                     the default models, on this device
  otlp lab tune my/model my/small-model --device cuda --dtype bfloat16 --prompts prompts.txt
  otlp lab tune --paths 1,2,4,8 --length 1,2,4,8 --check 20
  otlp lab tune --trees 2-2-1,4-2-1-1 --draft-temperature 0.8,1,1.2
  otlp lab tune smollm2 lookup --prompts humaneval:0-9        any draft of otlp decode
"""
)
@click.argument("target", default=TRAINED_PAIR[0])
@click.argument("draft", default=TRAINED_PAIR[1])
@prompt_options(limit=8)
@options.paths_option("1,2,4")
@options.length_option("1,2,3,4,6")
@click.option(
    "--trees",
    type=ListOf(read_tree),
    default="2-2,2-2-1,3-2-1-1",
    help="Prefix trees, as numbers of children per token at each depth.",
)
@options.temperature_option()
@options.draft_temperature_option(ListOf(float))
@options.sampling_options
@click.option(
    "--text", type=click.IntRange(2), default=96, help="Number of tokens per text for predictions."
)
@options.tokens_option(96)
@click.option("--check", type=click.IntRange(0), default=3, help="Number of best settings to time.")
@click.option("--compile/--no-compile", "compiled", default=True, help="Compile the decoding loop.")
@click.option(
    "--clock", type=click.Choice(list(CLOCKS)), default="wall", help="Clock of the measured times."
)
@options.seed_option()
@click.option(
    "--config", type=OutputFile(), default="tuned.json", help="File for the best setting."
)
@options.json_option("Write all results to a file.")
def command(
    models: Models,
    paths: tuple[int, ...],
    length: tuple[int, ...],
    trees: tuple[tuple[int, ...], ...],
    temperature: float,
    draft_temperature: tuple[float, ...] | None,
    text: int,
    tokens: int,
    check: int,
    compiled: bool,
    clock: str,
    seed: int,
    config: Path,
    json_path: Path | None,
    **cuts: Any,
) -> None:
    """Find the setting with the most tokens per second for TARGET with DRAFT.

    The target generates text after each prompt. The tokens per call of each setting are predicted
    from this text (text renewal, docs/trees.md). A few settings are timed to measure the cost of a
    round. The settings with the best predictions are then timed next to autoregressive decoding of
    the same prompts.

    The file --config contains the best setting timed so far. Before any timing, a new file contains
    the setting with the fewest draft tokens. `otlp lab decode` and otlp_lab.generation.generate
    read the file. Every setting keeps the target's distribution. If the draft is not a network
    (ngram, lookup, mixtures), the rounds of `otlp decode` are used, and nothing is compiled.
    """
    sampling = Sampling(temperature, *(cuts[name] for name in SAMPLING))
    drafted = dict.fromkeys(None if one == temperature else one for one in draft_temperature or ())
    for one in drafted:
        sampling.at(one)
    settings = grid(paths, length, trees, drafted or [None])
    longest = max(one.length for one in settings)
    if text <= longest:
        raise InvalidInputError(
            f"--text must be more than the longest path, {longest}, got {text}: use longer texts"
        )
    how = {"compiled": compiled, "clock": clock, "seed": seed}
    given = read_prompts(models.prompts, models.limit)
    if len(given) < LEAST:
        raise InvalidInputError(
            f"--prompts and --limit must give at least {LEAST} prompts, got {len(given)}"
        )
    pair, prompts = models.load(sampling, given)
    bench = _bench(models, pair, prompts, sampling, tokens, **how)
    content = {
        **models.record(),
        "temperature": temperature,
        "draft_temperature": draft_temperature,
        **{name: cuts[name] for name in SAMPLING},
    }

    def write(tuned: Tuned) -> None:
        write_whole(config, lambda path: path.write_bytes(tuned.to_json().encode()))

    def keep(result: TuningResult) -> None:
        write(result.tuned)
        write_result(json_path, "tune", {**content, **result.record()})

    names, best = (models.target, models.draft), 0.0

    def report_trial(one: LoopSetting, seconds: float, rate: float) -> None:
        nonlocal best
        if rate > best:  # Write now, so that an interrupted run has a result.
            best = rate
            write(tuned_by(names, bench, one, rate))
        warn(
            f"{one}: {1e3 * seconds:.1f} ms per round, about {rate:.0f} tokens per second"
            + (f"; written to {config}" if rate == best else "")
        )

    if not config.exists():  # Keep the timed setting of an earlier run.
        first = min(settings, key=lambda one: (one.nodes, one.draft_temperature is not None))
        write(tuned_by(names, bench, first))
        warn(f"{first}: written to {config} until a setting is timed")
    texts, begun = target_texts(pair, prompts, text, longest, LEAST, seed)
    written = TunedTexts.of(pair[0], sampling, begun, texts, drafted)
    with progress("tokens per call", 0) as step:
        found, costs = predict(
            written.by_temperature,
            settings,
            lambda gains: measure_costs(bench, settings, gains, step, report_trial),
            keep=check,
            progress=step,
        )
    with progress("target-only", None):
        top = target_only_gain(fastest(found, 1)[0], written)
    result = TuningResult(names, bench, found, None, costs, top)
    keep(result)
    if check:
        warn(f"predicted best, written to {config}: {result.winner.setting}; timing the best")
        with progress("timing", 0) as step:
            timed = bench.race(fastest(result.found, check), progress=step)
        result = replace(result, timed=timed)
        keep(result)
    console.print(f"{result.title}, T = {temperature:g}\n")
    show(result.table())
    console.print()
    for line in result.lines():
        console.print(line)
    note(f"written to {config}")


def _bench(
    models: Models,
    pair: tuple[Model, HuggingFaceModel],
    prompts: Sequence[IntArray],
    sampling: Sampling,
    tokens: int,
    **how: Any,
) -> Bench:
    """Make the loops to time; raise for unsupported models and clocks."""
    from otlp.device import Llama

    draft, target = pair
    loops: tuple[Any, Any] = target, draft
    network, shares = network_and_shares(draft)
    if isinstance(network, HuggingFaceModel):
        loops = Llama(target.model), Llama(network.model, shares)
    elif how["clock"] != "wall":
        raise InvalidInputError(
            f"--clock must be wall for a draft that is not a network, such as "
            f"{models.draft!r:.60}; got {how['clock']}"
        )
    return Bench(*loops, sampling, prompts, tokens, ends=target.ends, **how)
