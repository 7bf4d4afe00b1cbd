"""``otlp report``: one page about a pair of models, made of what the other commands find."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from otlp.checks import number
from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, pair_file_options
from otlp.cli.options import OutputFile
from otlp.cli.output import console, fail, warn, write_result, write_whole
from otlp.cli.prompts import Models, model_options
from otlp.cli.report_parts import KEPT, Part, parts_of, run_parts
from otlp.cli.rows import ChosenRows
from otlp.data.captures import Capture
from otlp.data.sampling_cuts import SAMPLING
from otlp.data.spread_rows import spread_rows
from otlp.errors import InvalidInputError
from otlp.parallel.rows import CaptureRows
from otlp.report.page import write_page
from otlp.report.results import Result
from otlp.report.sections import sections
from otlp.report.sentences import first_screen, side_by_side
from otlp.studies.canvas import file_types
from otlp.studies.capturing import DECODED
from otlp.studies.sweep import Grid

OF_MODELS = ("target", "draft", "prompt_file", "device", "dtype", "limit", "tokens", "top_logprobs")

SINGLE_PLACES = Result(
    "",
    reason="the built-in capture holds single places of its texts, and tokens a call need every "
    "place: give --target and --draft",
)

TOKENS = 64
"""Tokens of each text of a capture that is made."""

NOT_CUT = {"sampling_top_k": 0, "sampling_top_p": 1.0, "sampling_min_p": 0.0}
"""Values of options that cut nothing."""


@click.command(
    epilog="""\b
Examples:
  otlp report --output report.html                         the built-in capture
  otlp report mine.safetensors --output report.html        a capture, or arrays of p and q
  otlp report one.safetensors two.safetensors --output both.html     two drafts, side by side
  otlp report --target my/model --draft my/small-model --prompts prompts.txt --output report.html
"""
)
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE] [FILE]")
@click.option(
    "--output", type=OutputFile(lambda: (".html", ".htm")), required=True, help="The page to write."
)
@pair_file_options
@model_options(limit=10)
@options.tokens_option(TOKENS)
@click.option("--top-logprobs", type=click.IntRange(1), help="Keep the likeliest tokens only.")
@options.rows_option(400)
@options.temperature_option(0.7)
@options.sampling_options_of(20, 0.95)
@click.option("--draft-cost", type=click.FloatRange(0), help="A draft call, in target calls.")
@click.option(
    "--node-cost", type=click.FloatRange(0), help="What a node adds to a target call, likewise."
)
@options.jobs_option
@options.json_option("Write the numbers of the page to a file.")
def command(
    files: tuple[str, ...],
    output: Path,
    logits: bool,
    pad_vocabulary: bool,
    models: Models,
    tokens: int,
    top_logprobs: int | None,
    rows: int,
    jobs: int | None,
    json_path: Path | None,
    **asked: Any,
) -> None:
    """Write one page that says what a draft is worth.

    The page answers in plain sentences: how much the draft agrees with the target, how often rules
    keep its tokens, which tree to draft, what verification costs. Figures and tables follow, each
    with the command that gives its numbers. --temperature and the --sampling options are those that
    the models are served with.
    """
    if len(files) > 2:
        raise click.UsageError(f"FILE must be given at most twice, got {len(files)} files")
    context = click.get_current_context()
    given = [
        name for name in OF_MODELS
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]  # fmt: skip
    if given and (files or logits or pad_vocabulary):
        raise click.UsageError("FILE and options of models, prompts and texts exclude each other")
    file_types()  # raises if there is nothing to draw with
    cuts = {name: asked[name] for name in SAMPLING}
    Grid(temperature=(asked["temperature"],), **cuts)  # raises if a value is out of its range
    folder = Path(f"{output}.parts")
    call_costs = asked["draft_cost"], asked["node_cost"]
    for name, cost in zip(("draft_cost", "node_cost"), call_costs, strict=True):
        number(cost or 0.0, name, 0.0)
    served, costs = (
        _words(asked, "temperature", *SAMPLING),
        _words(asked, "draft_cost", "node_cost"),
    )
    try:
        if given:
            taken = _words({"tokens": tokens, "top_logprobs": top_logprobs})
            sources = [_captured(output, models, taken, folder)]
        else:
            sources = [CaptureFile(path, logits, pad_vocabulary) for path in files or (None,)]
        captures = [source.open() for source in sources]
        _check_vocabularies(captures)
        pairs = []
        for source, capture in zip(sources, captures, strict=True):
            chosen = CaptureRows(capture, spread_rows(len(capture), rows))
            how = (rows, served, _text_temperature(capture), costs, jobs or os.cpu_count() or 1)
            parts = parts_of(source, models if given else None, *how)
            found = run_parts(parts, folder, str(chosen.heading()["fingerprint"]))
            pairs.append({**found, "round": found.get("round", SINGLE_PLACES)})
    except OSError as error:
        fail(f"cannot keep anything in {folder}: {error.strerror or error}")
    except KeyboardInterrupt:
        warn(f"{folder} keeps what is done: the same command goes on from there")
        raise
    finally:
        with suppress(OSError):  # it is not there, or not empty
            folder.rmdir()
    names = _names(captures, sources)
    answers, contrast = [first_screen(pair) for pair in pairs], side_by_side(pairs, names)
    page = write_page(names, answers, contrast, [sections(pair, call_costs) for pair in pairs])
    write_whole(output, lambda path: path.write_bytes(page.encode()))
    written = [
        {**ChosenRows(source.path, capture, ()).source, "answers": said, "parts": _parts(pair)}
        for source, capture, said, pair in zip(sources, captures, answers, pairs, strict=True)
    ]
    write_result(json_path, "report", {**asked, "contrast": contrast, "pairs": written})
    for path in folder.iterdir():
        if KEPT.fullmatch(path.name):
            path.unlink()
    with suppress(OSError):  # there are files of others
        folder.rmdir()
    for name, said in zip(names, answers, strict=True):
        console.print("\n- ".join([name, *said]) + "\n")
    console.print("\n".join([*contrast, f"{output}: the page, with figures and tables"]))


def _words(asked: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """Write options as a shell takes them, without those that are None or cut nothing."""
    chosen = {name: asked[name] for name in names or asked}
    kept = {n: v for n, v in chosen.items() if v is not None and v != NOT_CUT.get(n)}
    return tuple(w for n, v in kept.items() for w in (f"--{n.replace('_', '-')}", f"{v:g}"))


def _captured(output: Path, models: Models, words: tuple[str, ...], folder: Path) -> CaptureFile:
    """Capture the models beside the page, unless that was done before."""
    path = output.with_suffix(".safetensors")
    part = Part(("capture", str(path), *models.words, *words))
    if reason := run_parts({"capture": part}, folder, "")["capture"].reason:
        fail(reason)
    return CaptureFile(str(path))


def _check_vocabularies(captures: Sequence[Capture]) -> None:
    sizes = [capture.model_vocab_size for capture in captures]
    if len(set(sizes)) > 1:
        raise InvalidInputError(
            "captures side by side must have one vocabulary, got V = {:,} and V = {:,}: write a "
            "report of each".format(*sizes)
        )


def _text_temperature(capture: Capture) -> float:
    """The temperature that the text of a capture was written at; 1 if the capture does not say."""
    found = re.match(rf"{DECODED} at temperature ([\d.e-]+)", capture.source)
    return float(found[1]) if found else 1.0


def _names(captures: Sequence[Capture], sources: Sequence[CaptureFile]) -> list[str]:
    """A name for each pair, all different."""
    names = [f"{capture.target_model} / {capture.draft_model}" for capture in captures]
    if len(set(names)) < len(names):
        names = [f"{name} ({source.name})" for name, source in zip(names, sources, strict=True)]
    return names


def _parts(pair: Mapping[str, Result]) -> dict[str, Any]:
    return {
        name: {"command": one.command, "reason": one.reason, "result": one.content or None}
        for name, one in pair.items()
    }
