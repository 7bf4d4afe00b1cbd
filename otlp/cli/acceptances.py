"""Mean acceptances of rules: a table a scheme, and why rules are missing."""

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
"""What a table says of a rule, beside the optimum at the same setting."""


def parted(rules: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The solvers among rules, and a user's own, each once."""
    own = tuple(dict.fromkeys(rule for rule in rules if ":" in rule))
    return tuple(rule for rule in rules if ":" not in rule), own


def measure_all(
    rules: Sequence[str], source: RowSource, grid: Grid
) -> Iterator[tuple[str, Measured]]:
    """What `otlp.cli.own_rules` measures of each rule, with a bar."""
    for rule in rules:
        from otlp.cli.own_rules import measure_own

        with progress(rule, len(grid.settings)) as step:
            for one in measure_own(rule, source, grid, step):
                yield rule, one


def print_points(
    points: Sequence[SweepPoint], over: str, cell: Cell, without: Collection[str] = ()
) -> None:
    """Print a table for each panel: a line a rule, a column for each value of an axis.

    Rules of `without` have no line.
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
    """Say why rules are missing, and what stars and intervals mean."""
    _note_missing(points)
    if any(point.partial for point in points):
        note("*: a mean over fewer rows than the optimum's.")
    _note_sampled(points, time_limit)


def _note_sampled(points: Sequence[SweepPoint], time_limit: float) -> None:
    """Say what the interval of a drawn acceptance is, and where it is wider than it should be."""
    drawn = [point for point in points if point.sampling_error]
    if drawn:
        note("±: half of a 95% interval of what was drawn, on these very rows; no ±: exact.")
    widest = max((point.sampling_error for point in drawn), default=0.0)
    if widest > PRECISION:
        enough = time_limit * (widest / PRECISION) ** 2
        note(f"  ±{PRECISION:g} was not reached: some --time-limit {enough:.0f} would be enough.")


def _note_missing(points: Sequence[SweepPoint]) -> None:
    """Say why rules are missing: a line for all rules, schemes and n that share a reason."""
    missing: dict[str, list[SweepPoint]] = {}
    for found in points:
        if found.reason:
            # reasons name the drafts, as IID(V=4096, n=1), and n
            shared = re.sub(r"\w+\(V=.*?\)|n ?= ?\d+|\d+\.\de-\d+", "", found.reason)
            missing.setdefault(shared, []).append(found)
    for group in missing.values():
        settings = [found.setting for found in group]
        note(
            f"{_list(found.rule for found in group)} on {_list(one.scheme for one in settings)}, "
            f"n = {_list(one.n for one in settings)}: {group[0].reason}"
        )


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, dict.fromkeys(items)))
