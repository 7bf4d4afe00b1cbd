"""``otlp bench``: time solvers on a capture, as in Table 1 of Global Resolution."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from otlp.cli import options
from otlp.cli.acceptances import measure_all
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.child import child_process
from otlp.cli.output import console, note, progress, show, table, write_figure, write_result
from otlp.cli.result_table import write_records
from otlp.cli.rows import ChosenRows
from otlp.parallel.rows import CaptureRows
from otlp.parallel.workers import in_this_process
from otlp.solvers import line_up
from otlp.solvers.solver import Solver
from otlp.studies.attempt import warm
from otlp.studies.benchmark import Cell, Size, benchmark, warm_up
from otlp.studies.figures import draw_times
from otlp.studies.sweep import Grid

DEFAULT_SOLVERS = ("linear-program", "max-flow", "slackness", "global-resolution", "martingale")

COLUMNS = ("reduce", "build", "solve", "recover", "plan", "marginals", "bound", "total")
"""Fields of `Timings`: parts of the solver and their sum, parts of the certificate, and total."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp bench                                        the table, under a minute
  otlp bench --top-k 100,1000 --n 2,3 --solvers max-flow,martingale --rows 20
  otlp bench --solvers max-flow --engine ortools --engine graph-tool
  otlp bench --rules mine.py:verify --table times.tex    with your own rule
  otlp bench mine.safetensors --json times.json --figure times.svg
  otlp bench --top-k 0 --n 2,4,8 --solvers martingale    0 = the whole vocabulary
"""
)
@capture_argument
@options.top_k_option("10,100,1000")
@options.n_option("2,3,4")
@options.solvers_option(",".join(DEFAULT_SOLVERS))
@options.engine_option(multiple=True)
@options.own_option("Your own rules as FILE.py:FUNCTION, audited and timed per call.")
@options.rows_option(5)
@options.time_limit_option(5.0)
@options.temperature_option()
@options.served_options
@options.jobs_option
@options.json_option("Write every solve to a JSON file.")
@options.figure_option("Plot time against size.")
@options.table_option
def command(
    capture: CaptureFile,
    top_k: tuple[int | None, ...],
    n: tuple[int, ...],
    solvers: tuple[str, ...],
    engine: tuple[str, ...],
    rules: tuple[str, ...],
    rows: int,
    time_limit: float,
    temperature: float,
    jobs: int | None,
    json_path: Path | None,
    figure_path: Path | None,
    table_path: Path | None,
    **sampling: Any,
) -> None:
    """Time solvers on a capture: median milliseconds, success rate, acceptance.

    The first table shows the time of plan and certificate. The second table shows the time of each
    part of a solve, such as the reductions and the engine.

    Table rows are (k, n): n i.i.d. drafts from the draft model's top k tokens.  With --jobs
    the run is shorter, but parallel solves slow each other down.

    Your own rules are audited on a synthetic problem with at least five tokens, and their calls are
    timed while they verify drafts sampled for the rows.  FILE.py is executed.
    """
    chosen = ChosenRows.spread(capture, rows)
    data = chosen.capture
    sizes = [Size(k, drafts) for k in top_k for drafts in n]
    for k in top_k:
        data.check_top_k(k)
    data.check_top_k(sampling["sampling_top_k"], "sampling_top_k")
    timed = line_up(solvers, time_limit, engine)
    if in_this_process(jobs):
        _warm_up(timed)
    cells: list[Cell] = []
    with progress("timing", len(sizes) * len(timed) * len(chosen.numbers)) as step:
        args = (data, sizes, timed, chosen.numbers, time_limit, temperature, sampling)
        found_so_far = partial(_times, cells, list(timed))
        for cell in benchmark(*args, jobs, lambda label: step(label, table=found_so_far())):
            cells.append(cell)
    grid = Grid(n, (temperature,), top_k, ("iid",), (), time_limit=time_limit, **sampling)
    timed_rules = measure_all(rules, CaptureRows(data, chosen.numbers), grid)
    own = [one.timing(rule) for rule, one in timed_rules]
    found: dict[str, object] = {
        **chosen.chosen,
        "temperature": temperature,
        **sampling,
        "time_limit_seconds": time_limit,
        "jobs": jobs,
        "cells": [_record(cell) for cell in cells],
    }
    found |= {"rules": own} if own else {}
    write_result(json_path, "bench", found)
    if table_path:
        write_records(table_path, [_fields(cell) for cell in cells])
    write_figure(figure_path, draw_times, cells)
    console.print("Milliseconds of plan and certificate, and acceptance")
    console.print(f"{chosen.title}\n")
    show(_times(cells, list(timed)))
    note(
        "\nMedian time of plan and certificate (success rate, if not 100%), and below it the "
        "mean acceptance of the solved rows. -: skipped, see the reason below."
    )
    if (jobs or 1) > 1:
        note(
            "Rows were solved in parallel, and workers can slow each other down: compare these "
            "times only with each other."
        )
    if any(cell.partial for cell in cells):
        note(
            "*: mean over fewer solved rows than in other cells; do not compare it with the other "
            "cells."
        )
    console.print("\nWhere the time goes: median milliseconds\n")
    show(_parts(cells))
    note(
        "\nplan: sum of the parts before it (solver). marginals, bound: certificate. total: solver "
        "and certificate. error: optimal minus achieved acceptance, maximum over rows."
    )
    if own:
        console.print("\nYour own rules\n")
        show(_rules_table(own))
        note("\n±: half of the 95% sampling interval on these rows.")
    widest = None if None in top_k else max(k for k in top_k if k)
    chosen.print_truncation(chosen.truncations(temperature=temperature, top_k=widest))
    for cell in cells:
        if cell.skipped:
            size = f"({cell.size.k or data.model_vocab_size}, {cell.size.n})"
            note(f"{size} {cell.solver}: {cell.skipped}")


def _warm_up(solvers: Mapping[str, Solver]) -> None:
    """Load all kernels and engines; a child process compiles the last kernels meanwhile.

    Both processes use the same cache of machine code.  A daemonic process cannot start the child.
    """

    def from_the_last(_: object) -> None:
        for solver in reversed(list(solvers.values())):
            warm(solver)

    alone = multiprocessing.current_process().daemon
    helper = nullcontext() if alone else child_process(from_the_last)
    with helper, progress("warming up", len(solvers)) as step:
        for name, solver in solvers.items():
            warm_up(name, solver)
            step(f"warming up {name}")


def _rules_table(rules: Sequence[Mapping[str, Any]]) -> Table:
    made = table("(k, n)", "rule", "ms per call", "acceptance", "")
    made.columns[1].justify = made.columns[4].justify = "left"
    for one in rules:
        mean, half = one["acceptance"], one["acceptance_half_width"]
        made.add_row(
            f"({one['top_k'] or 'V'}, {one['n']})",
            one["rule"],
            "-" if one["seconds"] is None else _digits(1e3 * one["seconds"]),
            "-" if mean is None else f"{mean:.4f} ±{half:.4f}",
            one["reason"],
        )
    return made


def _fields(cell: Cell) -> dict[str, object]:
    """Return the fields of a cell for ``--table``."""
    solved = bool(cell.solved)
    return {
        "top_k": cell.size.k or "V",
        "n": cell.size.n,
        "solver": cell.solver,
        "solved": f"{len(cell.solved)}/{cell.rows}",
        "plan_ms": cell.milliseconds("plan") if solved else "",
        "total_ms": cell.milliseconds() if solved else "",
        "acceptance": cell.acceptance if solved else "",
        "error": cell.error if solved else "",
    }


def _times(cells: Sequence[Cell], solvers: Sequence[str]) -> Table:
    made = table("(k, n)", *(solver.replace(", ", ",\n").replace("-", "-\n") for solver in solvers))
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
    """Format with about three digits and no exponent."""
    if value < 0.001:
        return "0"
    return f"{value:,.0f}" if value >= 100.0 else f"{value:#.3g}"[:5]


def _parts(cells: Sequence[Cell]) -> Table:
    made = table("(k, n)", "solver", *COLUMNS, "error")
    made.columns[1].justify = "left"
    size = None
    for cell in cells:
        if cell.solved:
            made.add_row(
                "" if cell.size == size else f"({cell.size.k or 'V'}, {cell.size.n})",
                cell.solver,
                *(_digits(cell.milliseconds(part)) for part in COLUMNS),
                f"{cell.error:.0e}",
            )
            size = cell.size
    return made


def _record(cell: Cell) -> dict[str, object]:
    return {
        "top_k": cell.size.k,
        "n": cell.size.n,
        "solver": cell.solver,
        "row_count": cell.rows,
        "solved": len(cell.solved),
        "partial": cell.partial,
        "success_rate": cell.success_rate,
        "acceptance": cell.acceptance if cell.solved else None,
        "skipped": cell.skipped,
        "solves": [
            {**plain, "seconds": record.timings.to_dict()}
            for record in cell.records
            for plain in [{k: v for k, v in asdict(record).items() if k != "timings"}]
        ],
    }
