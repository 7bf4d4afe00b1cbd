"""``otlp decode``: decode with verification algorithms on real models and measure the speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from rich.table import Table

from otlp.cli import options
from otlp.cli.options import ListOf
from otlp.cli.output import console, note, progress, show, table, write_figure, write_result
from otlp.cli.own_verification import audit_own_rules, check_own_rules, load_own_rules
from otlp.cli.prompts import Models, model_options
from otlp.cli.result_table import write_records
from otlp.data.sampling_cuts import SAMPLING
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model, Sampling
from otlp.decode.verification import ALGORITHMS, SEEDED, Equality, Verification
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.studies.decoding import BASELINE, Measurement, Setting, measure, record
from otlp.studies.figures import draw_block_efficiency
from otlp.studies.names import short_names

DEFAULT = "speculative,block,k-seq,traversal,greedy-multipath,two-slice"

decoded_options = options.several(
    options.tokens_option(48),
    options.seed_option("0"),
    options.json_option("Write every run to a file."),
    options.figure_option("Plot the block efficiency."),
)
"""Options of commands that decode and measure, passed on to `decode`."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp decode                                   the default models, six algorithms, 1, 2, 4 paths
  otlp decode --algorithms two-slice --paths 4 --length 8 --temperature 0.2,0.6,1
  otlp decode --target my/model --draft my/small-model --device cuda --prompts prompts.jsonl
  otlp decode --draft 0.7*trained:draft+0.3*ngram     a mixture with cheap n-gram drafts
  otlp decode --algorithms equality --paths 2 --length 4    drafts that share the target's noise
  otlp decode --algorithms block,mine.py:verify --paths 1    your own rule, audited first
  otlp decode --tokens 128 --seed 0,1,2 --json runs.json --figure efficiency.svg
"""
)
@model_options(limit=4)
@click.option(
    "--algorithms",
    type=ListOf(options.RuleFileOr(click.Choice([*ALGORITHMS, *SEEDED]))),
    default=DEFAULT,
    help="Verification algorithms, or your own rules as FILE.py:FUNCTION; comma-separated.",
)
@click.option(
    "--calibration",
    type=click.Path(),
    help="File from otlp lab calibrate, for the algorithm 'equality'.  [default: built-in, if the "
    "pair has one]",
)
@options.paths_option("1,2,4")
@options.length_option("4")
@options.temperature_option("1")
@options.sampling_options
@decoded_options
@options.table_option
def command(
    models: Models,
    algorithms: tuple[str, ...],
    calibration: str | None,
    paths: tuple[int, ...],
    length: tuple[int, ...],
    temperature: tuple[float, ...],
    **decoded: Any,
) -> None:
    """Decode prompts with verification algorithms and measure block efficiency and speed-up.

    Block efficiency is the number of tokens per target call, with a 95% interval over prompts.
    The speed-up is relative to autoregressive decoding of the same prompts in the same process.
    Accepted: fraction of rounds that accept at least 1, 2, ... draft tokens. Every algorithm keeps
    the target's distribution. K is the number of paths, and L is their length. The algorithm
    "equality" drafts a tree of K L nodes with the random numbers that the target uses. For one seed
    the text equals the text of autoregressive decoding with these random numbers.

    Your own rules verify K i.i.d. paths of L tokens, and are called as in `otlp audit --length`.
    Each rule is audited first, for each K and L, on synthetic models with three tokens, and
    rejected if it is not lossless. The first token of each round is also tested on the models of
    this command. FILE.py is executed.
    """
    cuts = [decoded.pop(name) for name in SAMPLING]
    samplings = [Sampling(value, *cuts) for value in temperature]
    rules: dict[str, Verification] = {**load_own_rules(algorithms)}
    if calibration is not None:
        if "equality" not in algorithms:
            raise InvalidInputError("--calibration needs equality: add it to --algorithms")
        rules["equality"] = Equality(Calibration.read(calibration))
    settings, reasons = find_settings(algorithms, paths, length, rules=rules)
    audit_own_rules(settings)
    pair, prompts = models.load(samplings[0])
    decode(pair, prompts, samplings, settings, models=models, **decoded)
    for reason in reasons:
        note(f"skipped: {reason}")


def decode(
    pair: tuple[Model, HuggingFaceModel],
    prompts: Sequence[IntArray],
    samplings: Sequence[Sampling],
    settings: Sequence[Setting],
    *,
    models: Models,
    tokens: int,
    seed: Sequence[int],
    json_path: Path | None,
    figure_path: Path | None,
    table_path: Path | None = None,
    draft_temperature: float | None = None,
) -> None:
    """Decode with each setting and sampling, baseline first; print and write the results."""
    found: list[tuple[Measurement, Measurement]] = []
    for sampling in samplings:
        pair[0].sampling, pair[1].sampling = sampling.at(draft_temperature), sampling
        found += _measure(pair, prompts, settings, tokens, seed)
    check_own_rules(settings)
    title = f"{models.target} / {models.draft} on {pair[1].model.device}, {len(prompts)} prompts"
    content = {
        **models.record(),
        "sampling_top_k": samplings[0].top_k,
        "sampling_top_p": samplings[0].top_p,
        "sampling_min_p": samplings[0].min_p,
        "draft_temperature": draft_temperature,
        "branching": settings[-1].branching,
        "tokens": tokens,
        "measurements": [record(one, baseline) for one, baseline in found],
    }
    write_result(json_path, "decode", content)
    if table_path:
        names = short_names(one.setting.algorithm for one, _ in found)
        lines = [_fields(names[one.setting.algorithm], one, baseline) for one, baseline in found]
        write_records(table_path, lines)
    measured = [one for one, _ in found]
    write_figure(figure_path, draw_block_efficiency, measured, title)
    console.print(f"{title}\n")
    show(_table(found))
    note(
        "\nK drafted paths of L tokens at temperature T. ±: half of a 95% interval over prompts. "
        "Draft, target, verify: percentage of the time."
    )


def find_settings(
    algorithms: Sequence[str],
    paths: Sequence[int],
    length: Sequence[int],
    branching: tuple[int, ...] = (),
    rules: Mapping[str, Verification] = MappingProxyType({}),
) -> tuple[list[Setting], list[str]]:
    """Return the supported settings, baseline first, and the reasons for skipped settings."""
    settings, reasons = [Setting(BASELINE, 1, 1)], []
    drafting = [name for name in algorithms if name != BASELINE]
    for level, name, count in product(length, drafting, paths):
        setting = Setting(name, count, level, branching=branching, rule=rules.get(name))
        try:
            capability = setting.verification.supports(setting.drafting)
        except UnsupportedProblemError as error:
            reasons.append(str(error))
            continue
        if capability:
            settings.append(setting)
        else:
            reasons.append(f"{name} with K = {count}: {capability.reason}")
    if len(settings) == 1 and BASELINE not in algorithms:
        raise InvalidInputError("; ".join(reasons))
    return settings, list(dict.fromkeys(reasons))


def _measure(
    pair: tuple[Model, HuggingFaceModel],
    prompts: Sequence[IntArray],
    settings: Sequence[Setting],
    tokens: int,
    seeds: Sequence[int],
) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield the measurement of each setting at the models' temperature, with the baseline."""
    temperature = pair[1].sampling.temperature
    baseline = None
    with progress("decoding", len(settings) * len(prompts) * len(seeds)) as step:
        for setting in settings:
            here = replace(setting, temperature=temperature)
            label = f"{here.algorithm}, K = {here.paths}, L = {here.length}"
            one = measure(
                *pair,
                prompts,
                here,
                max_tokens=tokens,
                seeds=seeds,
                progress=partial(step, label),
            )
            baseline = baseline or one
            yield one, baseline


def _fields(name: str, one: Measurement, baseline: Measurement) -> dict[str, object]:
    """Return the fields of a measurement for ``--table``."""
    setting, timed = one.setting, one.timed
    gain = timed.speed_up(baseline.timed, "wall")
    efficiency = timed.block_efficiency
    return {
        "algorithm": name,
        "paths": setting.paths,
        "length": setting.length,
        "temperature": setting.temperature,
        "block_efficiency": efficiency.mean,
        "low": efficiency.low,
        "high": efficiency.high,
        "speed_up": gain.mean,
        "speed_up_low": gain.low,
        "speed_up_high": gain.high,
        "ms_a_token": 1e3 / timed.rate("wall").mean,
    }


def _table(found: Sequence[tuple[Measurement, Measurement]]) -> Table:
    heads = ("K", "L", "T", "block\nefficiency", "speed-up", "ms per\ntoken")
    made = table("algorithm", *heads, "draft", "target", "verify", "accepted")
    for one, baseline in found:
        setting, timed = one.setting, one.timed
        split = timed.shares
        plain = setting.algorithm == BASELINE
        made.add_row(
            setting.algorithm,
            "-" if plain else str(setting.paths),
            "-" if plain else str(setting.length),
            f"{setting.temperature:g}",
            str(timed.block_efficiency),
            str(timed.speed_up(baseline.timed, "wall")),
            f"{1e3 / timed.rate('wall').mean:.1f}",
            *(f"{split[part]:.0%}" for part in ("draft", "target", "verification")),
            "" if plain else " ".join(f"{share:.2f}" for share in one.acceptance),
        )
    return made
