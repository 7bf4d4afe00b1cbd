"""Timing, printing and storing of benchmark results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from otlp.cli.output import show, table, write_json
from otlp.distribution import FloatArray

Action = Callable[[], object]
Clock = Callable[[], float]


UNITS = ("amx_bf16", "avx512_bf16", "bf16")
"""CPU flags for bfloat16 multiplication: Intel's tiles, AVX-512, Arm."""


def bfloat16_units(listing: Path = Path("/proc/cpuinfo")) -> str:
    """Return the flags of `UNITS` that Linux lists for this processor; else "unknown"."""
    text = listing.read_text() if listing.exists() else ""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.M)
    if not flags:
        return "unknown"
    return ", ".join(one for one in UNITS if one in flags[1].split()) or "none"


def seconds_of(action: Action, *clocks: Clock) -> Any:
    """Return the seconds of one call by each clock (default wall time); one clock: a number."""
    begin = [clock() for clock in clocks or (perf_counter,)]
    action()
    taken = [clock() - start for clock, start in zip(clocks or (perf_counter,), begin, strict=True)]
    return taken[0] if len(taken) == 1 else taken


def repeated(action: Action, rounds: int, *clocks: Clock) -> FloatArray:
    """Return the seconds of `rounds` calls, after a first call that compiles and fills caches."""
    action()
    return np.array([seconds_of(action, *clocks) for _ in range(rounds)])


def in_turns(
    actions: Mapping[str, Action], rounds: int, *clocks: Clock, step: Callable[[str], object] = str
) -> dict[str, FloatArray]:
    """Return the seconds of `rounds` calls of each action in turn, without the first calls."""
    found: dict[str, list[Any]] = {name: [] for name in actions}
    for _ in range(rounds + 1):
        for name, action in actions.items():
            found[name].append(seconds_of(action, *clocks))
            step(name)
    return {name: np.array(taken[1:]) for name, taken in found.items()}


def shown(value: Any) -> str:
    """Format a table cell: four digits of a float, thousands separators in an integer."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def report(title: str, rows: Sequence[Mapping[str, Any]], json_path: Path | None = None) -> None:
    """Print rows with equal keys as a table, and write them to a file."""
    made = table(*rows[0], title=title)
    for row in rows:
        made.add_row(*map(shown, row.values()))
    show(made)
    if json_path:
        write_json(json_path, rows)
