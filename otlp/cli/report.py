"""``otlp report``: write an HTML page on a pair of models from the results of other commands."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import click

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, file_word, pair_file_options
from otlp.cli.options import OutputFile
from otlp.cli.output import CommandError, console, fail, warn, write_json, write_result, write_whole
from otlp.cli.prompts import Models, model_options
from otlp.cli.report_parts import Part, clear, parts_of, run_parts, run_quietly, stamp_of, words_of
from otlp.cli.rows import ChosenRows
from otlp.data.captures import Capture
from otlp.data.locked_folder import locked_folder
from otlp.data.sampling_cuts import SAMPLING
from otlp.data.whole_file import place_of
from otlp.decode.models.fingerprint import files_fingerprint
from otlp.errors import InvalidInputError
from otlp.report.page import write_page
from otlp.report.results import Result
from otlp.report.sections import break_even, sections
from otlp.report.sentences import first_screen, side_by_side
from otlp.studies.canvas import file_types
from otlp.studies.capturing import DECODED
from otlp.studies.sweep import Grid

OF_MODELS = ("target", "draft", "prompts", "device", "dtype", "limit", "tokens", "top_logprobs")

SINGLE_PLACES = "the built-in capture has no consecutive positions: give --target and --draft"


@options.grouped_command(
    epilog="""\b
Examples:
  otlp report --output report.html                         the built-in capture
  otlp report mine.safetensors --output report.html        a capture or arrays of p and q
  otlp report one.safetensors two.safetensors --output both.html     two drafts, side by side
  otlp report --target my/model --draft my/small-model --prompts prompts.txt --output report.html
"""
)
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE] [FILE]")
@click.option(
    "--output", type=OutputFile(lambda: (".html", ".htm")), required=True, help="HTML file."
)
@pair_file_options
@model_options(limit=10)
@options.tokens_option(64)
@options.top_logprobs_option
@options.rows_option(400)
@options.temperature_option(0.7)
@options.sampling_options_of(20, 0.95)
@options.draft_cost_option()
@options.node_cost_option()
@options.jobs_option_of("one per core")
@options.json_option("Write the numbers of the page to a file.")
def command(
    files: tuple[str, ...],
    output: Path,
    logits: bool,
    pad_vocabulary: bool,
    models: Models,
    tokens: int,
    top_logprobs: int | None,
    json_path: Path | None,
    **settings: Any,
) -> None:
    """Write a report on a draft model as one HTML page.

    The page states how much the draft agrees with the target, how often rules accept draft tokens,
    which tree to draft, and what verification costs. Figures and tables follow, each with the
    command that computes its numbers. --temperature and the --sampling options apply to the section
    "As served". Trees and decoding use the temperature of the text (1 if this command
    generates the text), without truncation.
    """
    if len(files) > 2:
        raise click.UsageError(f"FILE must be given at most twice, got {len(files)} files")
    words = words_of(vars(models)) if options.given(OF_MODELS) else ()
    if words and (files or logits or pad_vocabulary):
        raise click.UsageError("FILE excludes the options for models, prompts and texts")
    file_types()  # Raises without matplotlib.
    # Raises for a value out of range.
    Grid(temperature=(settings["temperature"],), **{name: settings[name] for name in SAMPLING})
    if json_path and place_of(json_path) == place_of(output):
        raise click.UsageError("--json and --output must be different files")
    folder, costs = Path(f"{output}.parts"), (settings["draft_cost"], settings["node_cost"])
    pairs = []
    try:
        with locked_folder(folder, partial(_unusable, folder)):
            stamps: tuple[str | None, ...] = ()
            sources = [CaptureFile(path, logits, pad_vocabulary) for path in files or (None,)]
            if words:
                stamps = (*map(files_fingerprint, (models.target, models.draft)), models.prompts)
                taken = words_of({"tokens": tokens, "top_logprobs": top_logprobs})
                sources = [_captured(output, (*words, *taken), stamps, folder)]
            captures = [source.open() for source in sources]
            sizes = [capture.model_vocab_size for capture in captures]
            if len(set(sizes)) > 1:
                message = "captures must have the same vocabulary size, got V = {:,} and V = {:,}"
                raise InvalidInputError(message.format(*sizes) + ": write one report for each")
            for source, capture in zip(sources, captures, strict=True):
                parts = parts_of(source, words, _text_temperature(capture), settings)
                stamp = stamp_of(source.path, *stamps)
                pairs.append(run_parts(parts, folder, stamp))
                pairs[-1].setdefault("round", Result("", reason=SINGLE_PLACES))
    except KeyboardInterrupt:
        warn(f"finished parts are in {folder}: run the same command to resume")
        raise
    names = [f"{capture.target_model} / {capture.draft_model}" for capture in captures]
    if len(set(names)) < len(names):  # two files of one pair
        names = [f"{name} ({source.name})" for name, source in zip(names, sources, strict=True)]
    answers, contrast = [first_screen(pair) for pair in pairs], side_by_side(pairs, names)
    page = write_page(names, answers, contrast, [sections(pair, costs) for pair in pairs])
    write_whole(output, lambda path: path.write_bytes(page.encode()))
    written = [
        {
            **ChosenRows(source.path, capture, ()).source,
            "answers": lines,
            "break_even": break_even(pair, costs),
            "parts": {name: one.record() for name, one in pair.items()},
        }
        for source, capture, lines, pair in zip(sources, captures, answers, pairs, strict=True)
    ]
    settings.pop("jobs")  # Results do not depend on it.
    write_result(json_path, "report", {**settings, "contrast": contrast, "pairs": written})
    clear(folder)
    for name, lines in zip(names, answers, strict=True):
        console.print("\n- ".join([name, *lines]) + "\n")
    console.print("\n".join([*contrast, f"{output}: full report, with figures and tables"]))


def _unusable(folder: Path, error: OSError) -> CommandError:
    if isinstance(error, BlockingIOError):
        message = f"another report is writing to {folder}: wait for it, or give another --output"
        return CommandError(message)
    return CommandError(f"cannot write to {folder}: {error.strerror or error}")


def _captured(
    output: Path, chosen: tuple[str, ...], stamps: tuple[str | None, ...], folder: Path
) -> CaptureFile:
    """Capture the models into a file next to the page, unless an earlier run did."""
    path = output.with_suffix(".safetensors")
    words = ["capture", file_word(str(path)), *chosen]
    record = folder / "capture.json"  # Inputs of the capture and stamp of its file.
    inputs = [stamp_of(*stamps), words]
    if not record.exists() or json.loads(record.read_text()) != [*inputs, stamp_of(path)]:
        if path.exists():
            fail(f"{path} exists already: give it as FILE, or delete it")
        warn(Part(tuple(words), {}).command)
        run_quietly(words)
        write_json(record, [*inputs, stamp_of(path)])
    return CaptureFile(str(path))


def _text_temperature(capture: Capture) -> float:
    """Return the temperature of the text of a capture; 1 if unknown."""
    found = re.match(rf"{DECODED} at temperature (\d+(?:\.\d+)?(?:e-?\d+)?)(?:,|$)", capture.source)
    return float(found[1]) if found else 1.0
