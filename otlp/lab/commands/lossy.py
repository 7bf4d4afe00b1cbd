"""``otlp lab lossy``: what rules lose that are not lossless, and what they accept for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp.cli import options
from otlp.cli.output import console, note, progress, show, table, write_result
from otlp.cli.rows import ChosenRows
from otlp.lab.lossy_rules import LOSSY_RULES, measure_loss


@click.command(
    epilog="""\b
Examples:
  otlp lab lossy                                ten rows of the built-in capture
  otlp lab lossy mine.safetensors --rows 100 --temperature 0.6 --json losses.json
"""
)
@options.capture_argument
@options.rows_option(10)
@options.row_options()
@options.json_option("Write what every rule loses on every row to a file.")
def command(capture: str | None, rows: int, json_path: Path | None, **cut: Any) -> None:
    """Measure rules that change the text on purpose, on rows of a CAPTURE.

    For each rule the total variation and the KL divergence of its output from the target, its
    acceptance with one draft, and alpha* + TV, which no rule exceeds.  All of it is exact.
    """
    chosen = ChosenRows.spread(capture, rows)
    chosen.capture.check_top_k(cut["top_k"])
    found = []
    with progress("lossy rules", len(chosen.numbers)) as step:
        for row in chosen.numbers:
            pair = chosen.capture.distributions(row, **cut)
            for name, rule in LOSSY_RULES.items():
                loss = measure_loss(rule, *pair)
                found.append({"row": row, "rule": name, **asdict(loss), "share": loss.share})
            step(f"lossy rules, row {row}")
    write_result(json_path, "lossy", {**chosen.chosen, **cut, "losses": found})
    console.print(f"{chosen.title}\n")
    _print_losses(found)
    chosen.say_truncations(chosen.truncations(**cut))


def _print_losses(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the means over the rows, a line a rule."""
    made = table("not lossless, n = 1", "TV", "KL, nats", "acceptance", "alpha* + TV", "of TV used")
    for name in LOSSY_RULES:
        rows = [one for one in found if one["rule"] == name]
        fields = ("total_variation", "kl", "acceptance", "bound", "lossless")
        lost, kl, accepted, bound, best = (np.mean([one[f] for one in rows]) for f in fields)
        used = f"{(accepted - best) / lost:.1%}" if lost > 0.0 else "-"
        made.add_row(name, f"{lost:.4f}", f"{kl:.3g}", f"{accepted:.4f}", f"{bound:.4f}", used)
    show(made)
    note(f"alpha* {best:.4f}: what a lossless rule accepts. No rule accepts more than alpha* + TV.")
