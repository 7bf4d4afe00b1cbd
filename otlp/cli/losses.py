"""What rules lose that are not lossless, and what they accept for it: a table over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from otlp.cli.output import console, note, show, table
from otlp.studies.lossy_rules import LOSSY_RULES, measure_loss
from otlp.sweeps.rows import CaptureRows


def measure_losses(
    source: CaptureRows, cut: dict[str, Any], progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure every lossy rule on every row; exact, with one draft."""
    found = []
    for number, capture in source.part(0, len(source.numbers)):
        pair = capture.distributions(0, **cut)
        for name, rule in LOSSY_RULES.items():
            loss = measure_loss(rule, *pair)
            found.append({"row": number, "rule": name, **asdict(loss), "share": loss.share})
        progress(f"lossy rules, row {number}")
    return found


def print_losses(found: list[dict[str, Any]]) -> None:
    """Print the means over the rows, a line a rule."""
    made = table("not lossless, n = 1", "TV", "KL, nats", "acceptance", "alpha* + TV", "of TV used")
    for name in LOSSY_RULES:
        rows = [one for one in found if one["rule"] == name]
        fields = ("total_variation", "kl", "acceptance", "bound", "lossless")
        lost, kl, accepted, bound, best = (np.mean([one[f] for one in rows]) for f in fields)
        used = f"{(accepted - best) / lost:.1%}" if lost > 0.0 else "-"
        made.add_row(name, f"{lost:.4f}", f"{kl:.3g}", f"{accepted:.4f}", f"{bound:.4f}", used)
    console.print()
    show(made)
    note(f"alpha* {best:.4f}: what a lossless rule accepts. No rule accepts more than alpha* + TV.")
