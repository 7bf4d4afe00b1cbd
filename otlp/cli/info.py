"""``otlp info``: describe a capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.output import console, facts, progress, show, table, write_figure, write_result
from otlp.cli.rows import ChosenRows
from otlp.data.spread_rows import spread_rows
from otlp.distribution import FloatArray
from otlp.studies.figures import draw_overlap
from otlp.studies.overlap import OverlapGroup, Place, measure_overlaps


@options.grouped_command(
    epilog="""\b
Examples:
  otlp info                        the built-in capture
  otlp info mine.safetensors       a file of `otlp capture`
  otlp info mine.safetensors --rows 1000 --figure overlap.svg
"""
)
@capture_argument
@options.rows_option(100)
@options.json_option("Write the description to a file.")
@options.figure_option("Plot the overlap by entropy, position and passage.")
def command(
    capture: CaptureFile, rows: int, json_path: Path | None, figure_path: Path | None
) -> None:
    """Describe a capture: the source of its logits, and the overlap of draft and target.

    The overlap is the sum of min(p, q) at temperature 1: the acceptance rate of one draft token.
    Entropies, acceptances and truncation errors are shown as median [10%, 90%] of the rows. Mean
    overlaps have 95% intervals, computed over the passages of the rows. The rows with the lowest
    and highest overlap are shown with the end of their text.
    """
    data = capture.open()
    described = ChosenRows(capture.path, data, spread_rows(len(data), rows) if len(data) else [])
    with progress("reading rows", len(described.numbers)) as step:
        found = measure_overlaps(data, described.numbers, step)
    target, draft = found.target_entropy, found.draft_entropy
    groups = list(found.groups()) if found.rows.size else []
    lowest, highest = found.places()
    left_open = described.truncations() if data.kept is not None else []
    content: dict[str, Any] = {
        **described.source,
        "tokenizer": data.tokenizer,
        "source": data.source,
        "text": sha256(np.stack([data.positions, data.next_tokens]).tobytes()).hexdigest()[:12],
        "note": data.note,
        "row_count": len(data),
        "vocab_size": data.model_vocab_size,
        "stored_as": data.dtype if data.kept is None else None,
        "kept_tokens": data.kept,
        "described_rows": len(described.numbers),
        "row_choice": described.choice,
        "target_entropy_nats": _quantiles(target),
        "draft_entropy_nats": _quantiles(draft),
        "acceptance_of_one_draft": _quantiles(found.overlap),
        "left_open": _quantiles(left_open),
        "overlap": [group.record() for group in groups],
        "lowest_overlap": [asdict(place) for place in lowest],
        "highest_overlap": [asdict(place) for place in highest],
    }
    write_result(json_path, "info", content)
    write_figure(figure_path, draw_overlap, groups, described.title)
    printed = {
        "data": "synthetic, from a seeded generator" if data.synthetic else "real models",
        "target": data.target_model,
        "draft": data.draft_model,
        "tokenizer": data.tokenizer,
        "source": data.source,
        "rows": f"{len(data):,}",
        "vocabulary": f"{content['vocab_size']:,}",
        "stored as": data.dtype if data.kept is None else f"the {data.kept} most likely tokens",
        "entropy": f"target {_words(target)} nats, draft {_words(draft)} nats",
        "acceptance, n = 1": _words(found.overlap),
        "truncation error": _words(left_open) if data.kept is not None else "",
        "note": data.note,
    }
    facts(capture.path or "the built-in capture", printed)
    console.print(f"Median [10%, 90%] of {described.choice}.")
    if groups:
        console.print()
        show(_table(groups))
    for name, places in {"lowest": lowest, "highest": highest}.items():
        if places:
            console.print(f"\nRows with the {name} overlap\n")
            show(_places(places))


def _places(places: Sequence[Place]) -> Table:
    """Build a table of rows and their texts."""
    made = table("row", "overlap", "entropy", "end of the text", "next token")
    made.columns[3].justify = made.columns[4].justify = "left"
    for one in places:
        next_token = repr(one.continuation) if one.continuation else "unknown"
        numbers = f"{one.overlap:.4f}", f"{one.target_entropy:.2f}"
        made.add_row(str(one.row), *numbers, _end(one.text) or "unknown", next_token)
    return made


def _end(words: str) -> str:
    """Return the end of a text on one line."""
    line = " ".join(words.split())
    return line if len(line) < 50 else f"...{line[-47:]}"


def _table(groups: Sequence[OverlapGroup]) -> Table:
    """Build a table of the mean overlap, one line per group."""
    made = table("overlap by", "group", "rows", "mean")
    made.columns[1].justify, by = "left", ""
    for one in groups:
        words = one.by if one.by != by else ""
        made.add_row(words, _end(one.label), f"{one.rows:,}", one.overlap.show(4))
        by = one.by
    return made


def _quantiles(values: Sequence[float] | FloatArray) -> list[float] | None:
    """Return the median and the 10% and 90% quantiles."""
    return np.quantile(values, [0.5, 0.1, 0.9]).tolist() if len(values) else None


def _words(values: Sequence[float] | FloatArray) -> str:
    found = _quantiles(values)
    return "-" if found is None else "{:.3f} [{:.3f}, {:.3f}]".format(*found)
