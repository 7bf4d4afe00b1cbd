"""``otlp bench``: time solvers on a capture and print a table like the paper's Table 1."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from otlp.cli.options import (
    ListOf,
    OutputFile,
    capture_argument,
    figure_option,
    json_option,
    open_capture,
    rows_option,
    say_truncations,
    spread,
    time_limit_option,
    truncations,
    workers,
    workers_options,
)
from otlp.cli.output import console, progress, table, write_json, write_whole
from otlp.studies.benchmark import Cell, Size, benchmark
from otlp.studies.figures import draw_times
from otlp.timing import PARTS

DEFAULT_SOLVERS = ("linear-program", "max-flow", "slackness", "global-resolution", "martingale")


@click.command(
    epilog="""\b
Examples:
  otlp bench                                        the table, in under two minutes
  otlp bench --top-k 100,1000 --n 2,3 --solvers max-flow,martingale --rows 20
  otlp bench mine.safetensors --json times.json --csv times.csv --plot times.png
  otlp bench --top-k 0 --n 2,4,8 --solvers martingale    0 = the whole vocabulary
"""
)
@capture_argument
@click.option("--top-k", type=ListOf(click.IntRange(0)), default="10,100,1000")
@click.option("--n", "drafts", type=ListOf(click.IntRange(1)), default="2,3,4")
@click.option("--solvers", type=ListOf(str), default=",".join(DEFAULT_SOLVERS))
@rows_option(5)
@time_limit_option(5.0)
@click.option("--temperature", type=float, default=1.0)
@workers_options
@json_option("Write every solve to a JSON file.")
@click.option("--csv", "csv_path", type=OutputFile(), help="Write every solve to a CSV file.")
@figure_option("Draw time against size.", "--plot")
def command(
    capture: str | None,
    top_k: tuple[int, ...],
    drafts: tuple[int, ...],
    solvers: tuple[str, ...],
    rows: int,
    time_limit: float,
    temperature: float,
    jobs: int | None,
    scheduler: str | None,
    json_path: Path | None,
    csv_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Time solvers on a capture: median milliseconds a token, success rate, acceptance.

    Rows of the table are (k, n): n i.i.d. drafts from the draft model's top k tokens.  With --jobs
    or --scheduler it is done sooner, and the times are those of busy machines.
    """
    data = open_capture(capture)
    sizes = [Size(k, n) for k in top_k for n in drafts]
    for k in top_k:
        data.check_top_k(k or None)
    chosen = spread(data, rows)
    total = len(sizes) * len(solvers) * len(chosen)
    with workers(jobs, scheduler), progress("warming up", total) as step:
        cells = list(benchmark(data, sizes, solvers, chosen, time_limit, temperature, jobs, step))
    if json_path:
        write_json(json_path, [_flat(cell) for cell in cells])
    if csv_path:
        write_whole(csv_path, lambda path: _write_csv(path, cells))
    if plot_path:
        write_whole(plot_path, lambda path: draw_times(path, cells))
    synthetic = " (synthetic)" if data.synthetic else ""
    console.print(_times(cells, solvers, f"{data.target_model} / {data.draft_model}{synthetic}"))
    console.print(
        "Median time (success rate, if not 100%), below it the mean acceptance of the solved "
        "rows.\nA dash: skipped, for the reason below.",
        style="dim",
    )
    if scheduler or (jobs or 1) > 1:
        console.print(
            "Rows were solved at the same time, on workers that may slow each other down: compare "
            "these times with each other only.",
            style="dim",
        )
    if any(cell.partial for cell in cells):
        console.print(
            "*: over the solved rows only, which are fewer than its neighbours': not to be "
            "compared with them.",
            style="dim",
        )
    console.print(_parts(cells))
    widest = None if 0 in top_k else max(top_k)
    say_truncations(data, truncations(data, chosen, temperature=temperature, top_k=widest))
    for cell in cells:
        if cell.skipped:
            size = f"({cell.size.k or data.vocab_size}, {cell.size.n})"
            console.print(f"{size} {cell.solver}: {cell.skipped}", style="dim")


def _times(cells: Sequence[Cell], solvers: Sequence[str], title: str) -> Table:
    heads = (solver.replace("-", "-\n") for solver in solvers)
    made = table("(k, n)", *heads, title=f"Milliseconds a token and acceptance\n{title}")
    by_size: dict[Size, list[Cell]] = {}
    for cell in cells:
        by_size.setdefault(cell.size, []).append(cell)
    for size, row in by_size.items():
        made.add_row(f"({size.k or 'V'}, {size.n})", *map(_cell, row))
    return made


def _cell(cell: Cell) -> Text:
    if not cell.records:
        return Text("-")
    rate = "" if cell.success_rate == 1.0 else f" ({cell.success_rate:.0%})"
    if not cell.solved:
        return Text(f"failed{rate}")
    mark = f"* {len(cell.solved)} of {cell.rows} rows" if cell.partial else ""
    return Text.assemble(
        f"{_digits(cell.milliseconds())}{rate}\n", (f"{cell.acceptance:.5f}{mark}", "cyan")
    )


def _digits(value: float) -> str:
    """About three digits, and no exponent."""
    if value < 0.001:
        return "0"
    return f"{value:,.0f}" if value >= 100.0 else f"{value:#.3g}"[:5]


def _parts(cells: Sequence[Cell]) -> Table:
    title = "Where the time goes, median ms"
    heads = ("solver", *PARTS, "error")
    made = table("(k, n)", *heads, title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    made.columns[1].justify = "left"
    size = None
    for cell in cells:
        if cell.solved:
            made.add_row(
                "" if cell.size == size else f"({cell.size.k or 'V'}, {cell.size.n})",
                cell.solver,
                *(_digits(cell.milliseconds(part)) for part in PARTS),
                f"{cell.error:.0e}",
            )
            size = cell.size
    made.caption = "error: optimal acceptance minus the plan's, the largest of all rows"
    return made


def _flat(cell: Cell) -> dict[str, object]:
    return {
        "k": cell.size.k,
        "n": cell.size.n,
        "solver": cell.solver,
        "skipped": cell.skipped,
        "success_rate": cell.success_rate,
        "rows": cell.rows,
        "solved": len(cell.solved),
        "acceptance": cell.acceptance if cell.solved else None,
        "partial": cell.partial,
        "solves": [asdict(record) for record in cell.records],
    }


def _write_csv(path: Path, cells: Sequence[Cell]) -> None:
    solves = [asdict(record) for cell in cells for record in cell.records]
    parts = [solve.pop("timings") for solve in solves]
    rows = [solve.pop("size") | solve | part for solve, part in zip(solves, parts, strict=True)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0] if rows else ())
        writer.writeheader()
        writer.writerows(rows)
