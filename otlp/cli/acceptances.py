"""Tables of the mean acceptance of rules, and notes on missing rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from otlp.cli.output import console, note, progress, show, table
from otlp.parallel.rows import RowSource
from otlp.studies.compare import BOUND, OPTIMUM
from otlp.studies.points import PRECISION, SweepPoint, by_panel
from otlp.studies.sweep import Grid

if TYPE_CHECKING:
    from otlp.cli.own_rules import Measured

Cell = Callable[[SweepPoint, SweepPoint], str]
"""Formats a table cell from the point of a rule and the optimum at the same setting."""


def split_rules(rules: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split rules into names of solvers and rules of files, without duplicates."""
    own = tuple(dict.fromkeys(rule for rule in rules if ":" in rule))
    return tuple(rule for rule in rules if ":" not in rule), own


def measure_all(
    rules: Sequence[str], source: RowSource, grid: Grid
) -> Iterator[tuple[str, Measured]]:
    """Measure each rule of a file with `otlp.cli.own_rules` and show a progress bar."""
    for rule in rules:
        from otlp.cli.own_rules import measure_own

        with progress(rule, len(grid.settings)) as step:
            for one in measure_own(rule, source, grid, step):
                yield rule, one


def print_points(
    points: Sequence[SweepPoint], over: str, cell: Cell, without: Collection[str] = ()
) -> None:
    """Print a table per panel: one line per rule, one column per value of the axis `over`.

    Rules in `without` are skipped.
    """
    for label, panel in by_panel(points, over).items():
        console.print(f"\n{label}")
        values = list(dict.fromkeys(getattr(point.setting, over) for point in panel))
        name = over.replace("_", "-")
        made = table("rule", *(f"{name} = {'V' if value is None else value}" for value in values))
        found = {(point.rule, getattr(point.setting, over)): point for point in panel}
        for rule in dict.fromkeys(point.rule for point in panel if point.rule not in without):
            cells = [
                cell(found[rule, value], found[OPTIMUM, value]) if found[rule, value].rows else "-"
                for value in values
            ]
            made.add_row(rule, *cells, style={OPTIMUM: "bold", BOUND: "dim"}.get(rule))
        show(made)


def note_points(points: Sequence[SweepPoint], time_limit: float) -> None:
    """Print why rules are missing, and explain stars; warn of wide sampling intervals."""
    _note_missing(points)
    if any(point.partial for point in points):
        note("*: mean over fewer rows than the optimum.")
    widest = max((point.sampling_error for point in points), default=0.0)
    if widest > PRECISION:
        enough = time_limit * (widest / PRECISION) ** 2
        note(
            f"The sampling error is up to ±{widest:.4f}; for ±{PRECISION:g} use --time-limit "
            f"{enough:.0f} (estimate)."
        )


def _note_missing(points: Sequence[SweepPoint]) -> None:
    """Print why rules are missing, one line for all rules, schemes and n with the same reason."""
    missing: dict[str, list[SweepPoint]] = {}
    for found in points:
        if found.reason:
            # Reasons contain the drafts, such as IID(vocabulary 96, n=1), and n: remove both.
            shared = re.sub(r"\w+\(vocabulary .*?\)|n ?= ?\d+|\d+\.\de-\d+", "", found.reason)
            missing.setdefault(shared, []).append(found)
    for group in missing.values():
        settings = [found.setting for found in group]
        note(
            f"{_list(found.rule for found in group)} on {_list(one.scheme for one in settings)}, "
            f"n = {_list(one.n for one in settings)}: {group[0].reason}"
        )


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, dict.fromkeys(items)))
