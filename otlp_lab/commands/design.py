"""``otlp lab design``: choose the draft tree for a pair of models and a budget of nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.options import ListOf, OutputFile
from otlp.cli.output import console, note, progress, show, table, warn, write_result, write_whole
from otlp.cli.prompt_files import Prompt, read_prompts
from otlp.cli.prompts import Models, model_options
from otlp.data.captures import Capture
from otlp.decode.drafting.growing import check_slots
from otlp.decode.models.fingerprint import files_fingerprint
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp.parallel.rows import CaptureRows
from otlp.studies.capturing import DECODED
from otlp_lab.commands.design_figure import draw_designs
from otlp_lab.commands.target_texts import target_texts
from otlp_lab.design import (
    FAMILIES,
    Candidate,
    CostCurve,
    Statistics,
    design,
    gather_statistics,
)
from otlp_lab.design.best_design import best_chain, worth
from otlp_lab.design.gathering import passes
from otlp_lab.design.text_renewal import WrittenText
from otlp_lab.design.written_texts import captured_texts, long_texts

OF_TEXT = ("target", "draft", "prompts", "limit", "device", "dtype", "tokens", "seed")
"""Parameters of the text that the target generates without FILE."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab design                                   the default models, 8, 16 and 32 nodes
  otlp lab design --nodes 24 --temperature 0.3 --statistics pair.json
  otlp lab design --target my/model --draft my/small-model --device cuda --prompts prompts.txt
  otlp lab design --draft-temperature 0.6,1         also choose the draft's temperature
  otlp lab design --draft-cost 0.05 --node-cost 0.002    by tokens per second
  otlp capture mine.safetensors && otlp lab design mine.safetensors
"""
)
@capture_argument
@model_options(limit=10)
@click.option(
    "--nodes",
    type=ListOf(click.IntRange(1)),
    default="8,16,32",
    help="Maximum number N of nodes per tree.",
)
@options.temperature_option()
@options.draft_temperature_option(ListOf(float))
@options.tokens_option(64)
@options.length_option(12)
@options.seed_option()
@click.option(
    "--statistics",
    "kept",
    type=OutputFile(),
    help="File of predicted tokens per call. The file is written if it does not exist.",
)
@options.draft_cost_option()
@options.node_cost_option()
@options.json_option("Write the designs to a file.")
@options.figure_option("Plot tokens per call over the number of nodes, by family.")
def command(
    capture: CaptureFile,
    models: Models,
    nodes: tuple[int, ...],
    temperature: float,
    draft_temperature: tuple[float, ...] | None,
    tokens: int,
    length: int,
    seed: int,
    kept: Path | None,
    draft_cost: float | None,
    node_cost: float | None,
    json_path: Path | None,
    figure_path: Path | None,
) -> None:
    """Choose the draft tree with the most tokens per target call, or per second if costs are given.

    The tokens per call of each tree are predicted without decoding (text renewal, docs/trees.md).
    The prediction uses the distributions of both models along text that the target generates after
    each prompt, or along the text of the capture FILE. The best tree of each family is shown with
    the standard error over texts; * marks the choice. The deterministic trees of the family "top"
    need calls of the draft model along the text, and are left out if FILE is given.
    """
    check_slots(max(nodes))
    if capture.path is None and tokens <= length:
        raise InvalidInputError(
            f"--tokens must be more than --length = {length}, got {tokens}: change one of them"
        )
    costs = None
    if draft_cost is not None or node_cost is not None:
        each = node_cost or 0.0
        calls = tuple(1.0 + each * at for at in range(max(nodes) + 1))
        costs = CostCurve(calls, draft_cost or 0.0)
    drafted = dict.fromkeys(None if one == temperature else one for one in draft_temperature or ())
    rows, prompts = None, list[Prompt]()
    settings: dict[str, Any] = {"length": length, "draft_temperature": list(drafted)}
    if capture.path is None:
        capture.refuse_pairs("give such a FILE")
        prompts = list(read_prompts(models.prompts, models.limit))
        settings |= {"tokens": tokens, "seed": seed, **_settings(models, prompts)}
    elif unused := options.given(OF_TEXT):
        raise click.UsageError(f"FILE contains the text: leave out {', '.join(unused)}")
    else:
        rows = capture.open()
    pair = (models.target, models.draft) if rows is None else (rows.target_model, rows.draft_model)
    stamp = "" if kept is None else _stamp(rows, models)
    statistics = _read_statistics(kept, pair, Sampling(temperature), stamp, settings)
    if statistics is None:
        statistics = _gather(
            rows,
            models,
            prompts,
            tokens,
            seed,
            target=pair[0],
            draft=pair[1],
            sampling=Sampling(temperature),
            budgets=nodes,
            length=length,
            draft_temperatures=tuple(drafted) or (None,),
        )
        statistics = replace(statistics, models=stamp, settings=settings)
        if kept is not None:
            gathered = statistics.to_json().encode()
            write_whole(kept, lambda path: path.write_bytes(gathered))
    chosen = [_designs(statistics, budget, costs) for budget in nodes]
    most = max(one.nodes for one in statistics.candidates)
    if max(nodes) > most:
        warn(
            f"the statistics contain trees of at most {most:g} nodes, and --nodes is {max(nodes)}: "
            "a larger tree may be better; give another file to gather statistics for it"
        )
    content = {
        "capture": None if rows is None else capture.name,
        "target": statistics.target,
        "draft": statistics.draft,
        "settings": settings,
        "text_count": statistics.texts,
        "text_tokens": statistics.tokens,
        "temperature": statistics.sampling.temperature,
        "budgets": [
            {"nodes": budget, "designs": [_record(one, costs, _chain(found)) for one in found]}
            for budget, found in zip(nodes, chosen, strict=True)
        ],
    }
    write_result(json_path, "design", content)
    pair_and_texts = (
        f"{statistics.target} / {statistics.draft}, {statistics.texts} texts, "
        f"{statistics.tokens} tokens, T = {statistics.sampling.temperature:g}"
    )
    if figure_path:
        by_budget = dict(zip(nodes, chosen, strict=True))
        write_whole(figure_path, lambda path: draw_designs(path, by_budget, pair_and_texts))
    console.print(f"{pair_and_texts}\n")
    show(_table(nodes, chosen, costs))
    note(
        "\n*: best. chain: best single path. over the chain: ratio with 95% interval, paired by "
        "texts. Tokens per target call, ± standard error over texts"
        + ("; tokens in the time of one target call." if costs else ".")
    )
    for budget, found in zip(nodes, chosen, strict=True):
        best = found[0]
        drawn = best.draft_temperature
        sharper = "" if drawn is None else f", draft temperature {drawn:g}"
        console.print(f"N = {budget}: {best}, {best.verification.name}{sharper}")


def _record(one: Candidate, costs: CostCurve | None, chain: Candidate | None) -> dict[str, Any]:
    """Return a design for `write_result`."""
    return {
        "over_chain": chain and one.over(chain).record(),
        "chain": one.is_chain,
        "family": one.family,
        "candidate": str(one),
        "verification": one.verification.name,
        "draft_temperature": one.draft_temperature,
        "nodes": one.nodes,
        "length": one.drafting.length,
        "depth": one.depth,
        "tokens_per_call": one.efficiency,
        "standard_error": one.error,
        "tokens_per_call_time": costs and costs.tokens_per_second(one),
    }


def _settings(models: Models, prompts: list[Prompt]) -> dict[str, Any]:
    """Return the settings of models and prompts that texts depend on; prompts as a hash."""
    return {
        "prompts": sha256(json.dumps(prompts).encode()).hexdigest()[:16],
        "limit": models.limit,
        "device": models.device,
        "dtype": models.dtype,
    }


def _stamp(rows: Capture | None, models: Models) -> str:
    """Return a fingerprint of the capture or the models."""
    if rows is not None:
        return str(CaptureRows(rows).heading()["fingerprint"])
    return " ".join(map(files_fingerprint, (models.target, models.draft)))


def _read_statistics(
    kept: Path | None,
    pair: tuple[str, str],
    sampling: Sampling,
    stamp: str,
    settings: dict[str, Any],
) -> Statistics | None:
    """Read stored statistics and check their inputs; None without a file."""
    if kept is None or not kept.exists():
        return None
    found = Statistics.read(kept)
    try:
        found.check_models(*pair, sampling)
    except InvalidInputError as error:
        raise InvalidInputError(f"{kept}: {error}, or give another file") from error
    if found.models and found.models != stamp:
        raise InvalidInputError(
            f"{kept}: the statistics must be of the current weights or rows of "
            f"{' and '.join(pair)}, which have changed: give another file to gather new statistics"
        )
    before = found.settings
    changed = [name for name in settings if before and before.get(name) != settings[name]]
    if changed:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise InvalidInputError(
            f"{kept}: the statistics were gathered with other values of {flags}: give the same "
            "values, or another file to gather new statistics"
        )
    return found


def _gather(
    rows: Capture | None,
    models: Models,
    prompts: Sequence[Prompt],
    tokens: int,
    seed: int,
    **how: Any,
) -> Statistics:
    """Gather statistics on the rows, or on new text; `how` is for `gather_statistics`."""
    sampling, length, begun = how["sampling"], how["length"], None
    if rows is not None:
        texts = _captured(rows, sampling.temperature, length)
    else:
        pair, encoded = models.load(sampling, prompts)
        texts, after = target_texts(pair, encoded, tokens, length, 1, seed)

        def begun(number: int) -> tuple[Model, IntArray]:
            pair[0].start(after[number])
            return pair[0], texts[number].tokens

    steps = passes(how["budgets"], len(how["draft_temperatures"]), begun is not None)
    with progress("text renewal", steps) as step:
        return gather_statistics(texts, begun=begun, progress=step, **how)


def _captured(rows: Capture, temperature: float, length: int) -> list[WrittenText]:
    if rows.synthetic or not rows.source.startswith(DECODED):
        warn(f"predictions need text generated by the target, got a capture of {rows.source!r:.60}")
    elif rows.source == DECODED:
        warn(
            "the temperature of the captured text is unknown: predictions hold if the temperature "
            f"was {temperature:g}"
        )
    texts = list(captured_texts(rows, temperature))
    return long_texts(texts, length, 1, warn)


def _designs(statistics: Statistics, nodes: int, costs: CostCurve | None) -> list[Candidate]:
    """Return the best design of each family, best first, and the best single path."""
    fitting = {one.family for one in statistics.candidates if one.nodes <= nodes}
    if not fitting:
        design(statistics, nodes, costs=costs)  # Raises with the smallest number of nodes.
    families = [name for name in FAMILIES if name in fitting]
    found = [design(statistics, nodes, costs=costs, families=[name]) for name in families]
    found.sort(key=lambda one: -worth(one, costs))
    chain = best_chain(statistics, nodes, costs)
    return found if chain is None or chain in found else [*found, chain]


def _chain(found: Sequence[Candidate]) -> Candidate | None:
    """Return the single path among designs, or None."""
    return next((one for one in found if one.is_chain), None)


def _table(
    nodes: Sequence[int], chosen: Sequence[Sequence[Candidate]], costs: CostCurve | None
) -> Table:
    drafted = any(one.draft_temperature for found in chosen for one in found)
    heads = (
        *(["draft\nT"] if drafted else []),
        "nodes",
        "depth",
        "tokens\nper call",
        "over the\nchain",
        *(["per call\ntime"] if costs else []),
    )
    made = table("family", "N", *heads, "verification")
    for budget, found in zip(nodes, chosen, strict=True):
        chain = _chain(found)
        for rank, one in enumerate(found):
            own = "" if one.draft_temperature is None else f"{one.draft_temperature:g}"
            made.add_row(
                f"{'chain' if one.is_chain else one.family}{'' if rank else ' *'}",
                str(budget),
                *([own] if drafted else []),
                f"{one.nodes:.4g}",
                str(one.drafting.length),
                f"{one.efficiency:.2f}" + (f" ±{one.error:.2f}" if one.error else ""),
                one.over(chain).show(3) if chain else "-",
                *([f"{costs.tokens_per_second(one):.2f}"] if costs else []),
                one.verification.name,
            )
    return made
