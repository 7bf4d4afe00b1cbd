"""``otlp info``: what a capture holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.output import console, facts, progress, write_result
from otlp.cli.rows import ChosenRows
from otlp.data.spread_rows import spread_rows
from otlp.distribution import entropy

SAMPLE_ROWS = 100


@click.command(
    epilog="""\b
Examples:
  otlp info                        the built-in capture
  otlp info mine.safetensors       one that `otlp capture` wrote
"""
)
@capture_argument
@options.json_option("Write the description to a file.")
def command(capture: CaptureFile, json_path: Path | None) -> None:
    """Describe a capture: where its logits come from, and what they are like."""
    data = capture.open()
    described = ChosenRows(
        capture.path, data, spread_rows(len(data), SAMPLE_ROWS) if len(data) else []
    )
    rows = described.numbers
    found = []
    with progress("reading rows", len(rows)) as step:
        for row in rows:
            p, q = data.distributions(row)
            found.append((entropy(p), entropy(q), np.minimum(p, q).sum()))
            step()
    target, draft, overlap = np.reshape(found, (-1, 3)).T.tolist()
    left_open = described.truncations() if data.kept is not None else []
    content: dict[str, Any] = {
        **described.source,
        "tokenizer": data.tokenizer,
        "source": data.source,
        "note": data.note,
        "row_count": len(data),
        "vocab_size": data.vocab_size - (data.kept is not None),
        "stored_as": data.dtype if data.kept is None else None,
        "kept_tokens": data.kept,
        "described_rows": len(rows),
        "row_choice": described.choice,
        "target_entropy_nats": _quantiles(target),
        "draft_entropy_nats": _quantiles(draft),
        "acceptance_of_one_draft": _quantiles(overlap),
        "left_open": _quantiles(left_open),
    }
    write_result(json_path, "info", content)
    printed = {
        "data": "synthetic, from a seeded generator" if data.synthetic else "real models",
        "target": data.target_model,
        "draft": data.draft_model,
        "tokenizer": data.tokenizer,
        "source": data.source,
        "rows": f"{len(data):,}",
        "vocabulary": f"{content['vocab_size']:,}",
        "stored as": data.dtype if data.kept is None else f"the {data.kept} likeliest tokens",
        "entropy": f"target {_words(target)} nats, draft {_words(draft)} nats",
        "acceptance, n = 1": _words(overlap),
        "left open": _words(left_open) if data.kept is not None else "",
        "note": data.note,
    }
    facts(capture.path or "the built-in capture", printed)
    if len(data) > SAMPLE_ROWS:
        console.print(f"Median [10%, 90%] of {described.choice}.")


def _quantiles(values: list[float]) -> list[float] | None:
    """Median, 10% and 90%."""
    return np.quantile(values, [0.5, 0.1, 0.9]).tolist() if values else None


def _words(values: list[float]) -> str:
    found = _quantiles(values)
    return "-" if found is None else "{:.3f} [{:.3f}, {:.3f}]".format(*found)
