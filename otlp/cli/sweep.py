"""``otlp sweep``: rules over settings on many rows, in a journal that goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otlp.cli.options import (
    OutputFile,
    capture_argument,
    draft_temperature_option,
    figure_option,
    json_option,
    n_option,
    open_capture,
    rows_option,
    rules_option,
    say_truncations,
    schemes_option,
    seed_option,
    temperature_option,
    time_limit_option,
    top_k_option,
    top_p_option,
    vocab_size_option,
    workers,
    workers_options,
)
from otlp.cli.options import source as source_of
from otlp.cli.output import console, note, progress, show, table, write_result, write_whole
from otlp.data.spread_rows import choice_of_rows, spread_rows
from otlp.data.synthetic import LEAST_TOKENS
from otlp.errors import OTLPError
from otlp.studies.compare import BOUND, OPTIMUM
from otlp.studies.figures import draw_sweep
from otlp.studies.sweep import AXES, Grid, SweepPoint, by_panel, sweep, varying
from otlp.sweeps.rows import CaptureRows, RowSource, SyntheticRows


@click.command(
    epilog="""\b
Examples:
  otlp sweep --n 1,2,4,8 --figure over_n.svg             every row of the built-in capture
  otlp sweep --n 4 --temperature 0.4,0.6,0.8,1 --rules k-seq,naive --figure over_t.svg
  otlp sweep mine.safetensors --n 2,4 --top-k 10,100,1000,0 --over top-k --journal mine.jsonl
  otlp sweep --synthetic 100000 --n 4 --rules martingale --journal big.jsonl --jobs 8
  otlp sweep --synthetic 100000 --journal big.jsonl --scheduler tcp://10.0.0.1:8786
"""
)
@capture_argument
@click.option("--synthetic", type=click.IntRange(1), help="So many made-up rows, and no capture.")
@vocab_size_option(4096, LEAST_TOKENS)
@seed_option()
@rows_option(None)
@n_option("1,2,3,4")
@temperature_option("1")
@top_k_option("0")
@draft_temperature_option()
@top_p_option
@schemes_option("iid")
@rules_option(",".join(Grid().rules))
@time_limit_option(10.0)
@workers_options
@click.option(
    "--journal",
    type=OutputFile(),
    help="Keep every finished row and setting here; if it is there, go on after its last line.",
)
@click.option(
    "--over",
    type=click.Choice([axis.replace("_", "-") for axis in AXES]),
    show_default="the first that varies",
    help="What columns and lines go over.",
)
@json_option("Write means and intervals to a file.")
@figure_option("Draw a line a rule, with 95% intervals over rows.")
def command(
    capture: str | None,
    synthetic: int | None,
    vocab_size: int,
    seed: int,
    rows: int | None,
    n: tuple[int, ...],
    top_k: tuple[int | None, ...],
    jobs: int | None,
    scheduler: str | None,
    journal: Path | None,
    over: str | None,
    json_path: Path | None,
    figure_path: Path | None,
    **same: Any,
) -> None:
    """Measure the acceptance of rules on many rows, over n, temperature and top-k.

    Every rule at every combination of the lists, on every row; the optimum and the information
    bound are measured beside them.  Means have 95% intervals over the rows.

    With a journal, a sweep that was interrupted, killed, or met a full disk is gone on with by the
    same command: no row is lost, and none is done twice.  The journal is the same to the byte,
    whatever the number of workers.
    """
    grid = Grid(n, top_k=top_k, **same)
    source = _rows(capture, rows, synthetic, vocab_size, seed)
    if isinstance(source, CaptureRows):
        for k in grid.top_k:
            source.capture.check_top_k(k)
    if journal:
        journal.parent.mkdir(parents=True, exist_ok=True)
    total = len(source.numbers) * len(grid.settings)
    try:
        with workers(jobs, scheduler) as where, progress("sweeping", total) as step:
            points = sweep(source, grid, journal, progress=step, **where)
    except KeyboardInterrupt:
        if journal:
            console.print(f"{journal} keeps what is done: the same command goes on from there.")
        raise
    chosen = over.replace("-", "_") if over else varying(points)
    title = _title(source)
    content = {
        **_origin(capture, source, seed),
        "draft_temperature": grid.draft_temperature,
        "top_p": grid.top_p,
        "time_limit_seconds": grid.time_limit,
        "points": [_point(point) for point in points],
    }
    write_result(json_path, "sweep", content)
    if figure_path:
        write_whole(figure_path, lambda path: draw_sweep(path, points, chosen, title))
    console.print(f"Mean acceptance: {title}")
    for label, panel in by_panel(points, chosen).items():
        console.print(f"\n{label}")
        show(_table(panel, chosen))
    note("\n±: half of a 95% interval over the rows.")
    if any(point.partial for point in points):
        note("*: a mean over fewer rows than the optimum's.")
    if isinstance(source, CaptureRows) and (found := _left_open(source, grid)):
        say_truncations(source.capture, found)
    for line in _reasons(points):
        note(line)


def _origin(capture: str | None, rows: RowSource, seed: int) -> dict[str, Any]:
    """Where the rows come from, for `write_result`."""
    found: dict[str, Any] = {"capture": None, "target": None, "draft": None, "synthetic": True}
    if isinstance(rows, CaptureRows):
        found = source_of(capture, rows.capture)
    made_up = isinstance(rows, SyntheticRows)
    return {
        **found,
        "seed": seed if made_up else None,
        "row_count": len(rows.numbers),
        "row_choice": _choice(rows),
        "vocab_size": rows.heading()["vocab_size"],
    }


def _choice(rows: RowSource) -> str | None:
    if isinstance(rows, CaptureRows):
        return choice_of_rows(len(rows.capture), len(rows.numbers))
    return None


def _point(point: SweepPoint) -> dict[str, Any]:
    found = point.record()
    return {"row_count": found.pop("rows"), **found}


def _left_open(rows: CaptureRows, grid: Grid) -> list[float]:
    """The most that each row leaves open at a setting; nothing for whole rows."""
    widest = None if None in grid.top_k else max(k for k in grid.top_k if k)
    same: dict[str, Any] = {
        "draft_temperature": grid.draft_temperature,
        "top_k": widest,
        "top_p": grid.top_p,
    }
    found = []
    for row in rows.numbers if rows.capture.kept else ():
        with suppress(OTLPError):  # a row that cannot be used has its reason
            found.append(max(rows.capture.truncation(row, t, **same) for t in grid.temperature))
    return found


def _rows(
    capture: str | None, rows: int | None, synthetic: int | None, vocab_size: int, seed: int
) -> RowSource:
    if synthetic is None:
        data = open_capture(capture)
        return CaptureRows(data, spread_rows(len(data), rows or len(data)))
    if capture is not None or rows is not None:
        raise click.UsageError("--synthetic makes up its rows: leave out CAPTURE and --rows")
    return SyntheticRows(synthetic, vocab_size, seed)


def _title(rows: RowSource) -> str:
    said = rows.heading()
    models = f"{said['target_model']} / {said['draft_model']}, " if "target_model" in said else ""
    rows_said = _choice(rows) or f"{said['rows']:,} synthetic rows"
    return f"{models}{rows_said}, V = {said['vocab_size']:,}"


def _table(points: Sequence[SweepPoint], over: str) -> Table:
    values = list(dict.fromkeys(getattr(point.setting, over) for point in points))
    name = over.replace("_", "-")
    made = table("rule", *(f"{name} = {'V' if value is None else value}" for value in values))
    for rule in dict.fromkeys(point.rule for point in points):
        own = {getattr(point.setting, over): point for point in points if point.rule == rule}
        style = {OPTIMUM: "bold", BOUND: "dim"}.get(rule)
        made.add_row(rule, *(_cell(own[value]) for value in values), style=style)
    return made


def _cell(point: SweepPoint) -> str:
    if not point.rows:
        return "-"
    mark = "*" if point.partial else ""
    mean, _, interval = point.acceptance.show(4).partition(" ")
    return f"{mean}{mark}\n{interval}".rstrip()


def _reasons(points: Sequence[SweepPoint]) -> list[str]:
    """Why rules are missing: the first reason for each rule and scheme."""
    first = {
        (point.rule, point.setting.scheme): point for point in reversed(points) if point.reason
    }
    return [f"{rule} on {scheme}: {p.reason}" for (rule, scheme), p in reversed(first.items())]
