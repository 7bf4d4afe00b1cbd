"""``otlp check``: every solver on the same rows, and whether they agree."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from otlp.cli.options import (
    capture_argument,
    names,
    open_capture,
    problem,
    row_options,
    scheme_option,
)
from otlp.cli.output import console
from otlp.solution import Solution
from otlp.solvers import SOLVERS
from otlp.studies.benchmark import warm
from otlp.studies.crosscheck import Verdict, cross_check

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  otlp check                                  ten rows, top-k 10, n = 2, all solvers
  otlp check --top-k 20 --n 3 --rows 5
  otlp check --scheme independent --n 3
  otlp check --solvers martingale,max-flow --top-k 100 --tolerance 1e-9
"""
)
@capture_argument
@click.option("--rows", type=int, default=10, show_default=True, help="How many rows.")
@click.option("--n", type=int, default=2, show_default=True, help="Number of drafts.")
@click.option("--top-k", type=int, default=10, show_default=True, help="Cut the draft to k tokens.")
@scheme_option
@row_options
@click.option("--solvers", callback=names, help="Comma-separated names [default: all].")
@click.option("--tolerance", type=float, default=1e-7, show_default=True)
@click.option(
    "--time-limit", type=float, default=10.0, show_default=True, help="Seconds a solve, roughly."
)
def command(
    capture: str | None,
    rows: int,
    n: int,
    top_k: int,
    solvers: tuple[str, ...],
    tolerance: float,
    time_limit: float,
    **cut: Any,
) -> None:
    """Cross-check solvers on rows of a capture; exit status 1 if they disagree.

    Solvers that prove their answer optimal must agree within the tolerance; every other plan
    must stay below the common bound and follow the target.
    """
    data = open_capture(capture)
    chosen = solvers or tuple(name for name in SOLVERS if name != "auto")
    instances = [problem(data, row, n, top_k=top_k, **cut) for row in range(min(rows, len(data)))]
    warm(chosen, data)
    verdicts: list[Verdict] = [
        cross_check(instance, chosen, tolerance, time_limit)
        for instance in track(instances, description="Checking", console=console, transient=True)
    ]
    title = f"{len(verdicts)} rows, top-k {top_k}, n = {n}, {cut['scheme']} drafts"
    console.print(_table(verdicts, chosen, title))
    for name in chosen:
        if reason := _absent(verdicts, name):
            console.print(f"[dim]{name}: {reason}")
    complaints = [
        f"row {row}: {complaint}"
        for row, verdict in enumerate(verdicts)
        for complaint in verdict.complaints
    ]
    for complaint in complaints:
        console.print(f"[red]{complaint}")
    if complaints:
        raise SystemExit(1)
    console.print(f"All agree within {tolerance:g} on {len(verdicts)} rows.")


def _table(verdicts: list[Verdict], solvers: tuple[str, ...], title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("solver", no_wrap=True)
    for heading in ("rows", "acceptance", "gap", "marginal error", "ms", "guarantee"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in solvers:
        planned = [s for s in _solutions(verdicts, name) if s.plan is not None]
        if planned:
            table.add_row(
                name,
                str(len(planned)),
                f"{fmean(s.acceptance for s in planned):.7f}",
                f"{max(s.gap for s in planned):.1e}",
                f"{max(s.marginal_error for s in planned):.1e}",
                f"{1e3 * median(s.timings.total for s in planned):.3f}",
                min(s.guarantee for s in planned).name,
            )
    table.caption = "mean acceptance, largest gap and marginal error, median time"
    return table


def _absent(verdicts: list[Verdict], name: str) -> str:
    """Why a solver is not in the table; empty if it is."""
    found = _solutions(verdicts, name)
    if any(s.plan is not None for s in found):
        return ""
    return found[0].status.value if found else verdicts[0].skipped[name]


def _solutions(verdicts: list[Verdict], name: str) -> list[Solution]:
    return [v.solutions[name] for v in verdicts if name in v.solutions]
