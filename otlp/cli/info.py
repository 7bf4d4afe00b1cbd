"""``otlp info``: what a capture holds."""

from __future__ import annotations

import click
import numpy as np

from otlp.cli.options import capture_argument, open_capture, truncations
from otlp.cli.output import console, facts
from otlp.distribution import entropy

SAMPLE_ROWS = 100


@click.command(
    epilog="""\b
Examples:
  otlp info                        the built-in capture
  otlp info mine.safetensors       one that `otlp capture` wrote, in one file or in shards
  otlp info captures/large         the one in a folder
"""
)
@capture_argument
def command(capture: str | None) -> None:
    """Describe a capture: where its logits come from, and what they are like."""
    data = open_capture(capture)
    rows = range(min(len(data), SAMPLE_ROWS))
    pairs = [data.distributions(row) for row in rows]
    entropies = ([entropy(pair[side]) for pair in pairs] for side in (0, 1))
    overlap = [float(np.minimum(target, draft).sum()) for target, draft in pairs]
    content = {
        "data": "synthetic, from a seeded generator" if data.synthetic else "real models",
        "target": data.target_model,
        "draft": data.draft_model,
        "tokenizer": data.tokenizer,
        "source": data.source,
        "rows": f"{len(data):,}",
        "vocabulary": f"{data.vocab_size - (data.kept is not None):,}",
        "stored as": data.dtype if data.kept is None else f"the {data.kept} likeliest tokens",
        "entropy": "target {} nats, draft {} nats".format(*map(_quantiles, entropies)),
        "acceptance, n = 1": _quantiles(overlap),
        "left open": _quantiles(truncations(data, rows)) if data.kept is not None else "",
        "note": data.note,
    }
    console.print(facts(capture or "the built-in capture", content))
    if len(data) > SAMPLE_ROWS:
        console.print(f"Figures from the first {SAMPLE_ROWS} rows: median [10%, 90%].")


def _quantiles(values: list[float]) -> str:
    if not values:
        return "-"
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"
