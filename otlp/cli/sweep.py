"""``otlp sweep``: rules over settings on many rows, in a journal that goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otlp.cli.options import (
    ListOf,
    OutputFile,
    Positive,
    capture_argument,
    figure_option,
    json_option,
    open_capture,
    say_truncations,
    spread,
    time_limit_option,
    workers,
    workers_options,
)
from otlp.cli.output import console, progress, table, write_json, write_whole
from otlp.drafts.by_name import SCHEMES
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
@click.option("--vocab-size", type=click.IntRange(1), default=4096, help="Of made-up rows.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Of made-up rows.")
@click.option(
    "--rows",
    type=click.IntRange(1),
    help="How many rows of the capture, spread over it. [default: all]",
)
@click.option("--n", "drafts", type=ListOf(click.IntRange(1)), default="1,2,3,4")
@click.option("--temperature", type=ListOf(Positive()), default="1")
@click.option("--top-k", type=ListOf(click.IntRange(0)), default="0", help="0: all tokens.")
@click.option("--draft-temperature", type=Positive(), help="Of the draft, at every setting.")
@click.option("--top-p", type=float, help="Cut the draft to the top-p nucleus, at every setting.")
@click.option("--schemes", type=ListOf(str), default="iid", help=f"Of {', '.join(SCHEMES)}.")
@click.option("--rules", type=ListOf(str), default=",".join(Grid().rules))
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
    help="What columns and lines go over. [default: the first that varies]",
)
@json_option("Write means and intervals to a file.")
@figure_option("Draw a line a rule, with 95% intervals over rows.")
def command(
    capture: str | None,
    synthetic: int | None,
    vocab_size: int,
    seed: int,
    rows: int | None,
    drafts: tuple[int, ...],
    top_k: tuple[int, ...],
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
    grid = Grid(drafts, top_k=[k or None for k in top_k], **same)
    source = _rows(capture, rows, synthetic, vocab_size, seed)
    if isinstance(source, CaptureRows):
        for k in grid.top_k:
            source.capture.check_top_k(k)
    if journal:
        journal.parent.mkdir(parents=True, exist_ok=True)
    total = len(source.numbers) * len(grid.settings)
    try:
        with workers(jobs, scheduler), progress("sweeping", total) as step:
            points = sweep(source, grid, journal, jobs=jobs, progress=step)
    except KeyboardInterrupt:
        if journal:
            console.print(f"{journal} keeps what is done: the same command goes on from there.")
        raise
    chosen = over.replace("-", "_") if over else varying(points)
    title = _title(source)
    if json_path:
        write_json(json_path, {"title": title, "points": [point.record() for point in points]})
    if figure_path:
        write_whole(figure_path, lambda path: draw_sweep(path, points, chosen, title))
    console.print(f"Mean acceptance: {title}")
    for label, panel in by_panel(points, chosen).items():
        console.print(_table(label, panel, chosen))
        console.print()
    console.print("±: half of a 95% interval over the rows.", style="dim")
    if any(point.partial for point in points):
        console.print("*: a mean over fewer rows than the optimum's.", style="dim")
    if isinstance(source, CaptureRows) and (found := _left_open(source, grid)):
        say_truncations(source.capture, found)
    for line in _reasons(points):
        console.print(line, soft_wrap=True, style="dim")


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
        return CaptureRows(data, spread(data, rows or max(1, len(data))))
    if capture is not None or rows is not None:
        raise click.UsageError("--synthetic makes up its rows: leave out CAPTURE and --rows")
    return SyntheticRows(synthetic, vocab_size, seed)


def _title(rows: RowSource) -> str:
    said = rows.heading()
    models = f"{said['target_model']} / {said['draft_model']}, " if "target_model" in said else ""
    made_up = " synthetic" if said["synthetic"] else ""
    return f"{models}{said['rows']:,}{made_up} rows, V = {said['vocab_size']:,}"


def _table(label: str, points: Sequence[SweepPoint], over: str) -> Table:
    values = list(dict.fromkeys(getattr(point.setting, over) for point in points))
    name = over.replace("_", "-")
    heads = (f"{name} = {'V' if value is None else value}" for value in values)
    left = {"title": label, "title_justify": "left", "pad_edge": False}
    made = table("rule", *heads, box=None, **left)
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
