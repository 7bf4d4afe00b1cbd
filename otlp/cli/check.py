"""``otlp check``: every solver on the same rows, and whether they agree."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import click
from rich.progress import track
from rich.table import Table

from otlp.cli.options import capture_argument, names, open_capture, problem, row_options
from otlp.cli.output import console
from otlp.crosscheck import Verdict, cross_check
from otlp.solvers import SOLVERS

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  otlp check                                  ten rows, top-k 10, n = 2, all solvers
  otlp check --top-k 20 --n 3 --rows 5
  otlp check --solvers martingale,max-flow --top-k 100 --tolerance 1e-9
"""
)
@capture_argument
@click.option("--rows", type=int, default=10, show_default=True, help="How many rows.")
@click.option("--n", type=int, default=2, show_default=True, help="Number of i.i.d. drafts.")
@click.option("--top-k", type=int, default=10, show_default=True, help="Cut the draft to k tokens.")
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
    verdicts: list[Verdict] = [
        cross_check(instance, chosen, tolerance, time_limit)
        for instance in track(instances, description="Checking", console=console, transient=True)
    ]
    console.print(_table(verdicts, chosen, n, top_k))
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


def _table(verdicts: list[Verdict], solvers: tuple[str, ...], n: int, top_k: int) -> Table:
    table = Table(title=f"{len(verdicts)} rows, top-k {top_k}, n = {n}")
    table.add_column("solver", no_wrap=True)
    for title in ("rows", "mean acceptance", "largest gap", "marginal error", "median ms"):
        table.add_column(title, justify="right")
    table.add_column("guarantee")
    for name in solvers:
        reason = next((v.skipped[name] for v in verdicts if name in v.skipped), "")
        found = [v.solutions[name] for v in verdicts if name in v.solutions]
        planned = [s for s in found if s.plan is not None]
        if not planned:
            why = reason or found[0].status.value
            table.add_row(name, "0", "-", "-", "-", "-", f"[dim]{why}")
            continue
        table.add_row(
            name,
            str(len(planned)),
            f"{fmean(s.acceptance for s in planned):.7f}",
            f"{max(s.gap for s in planned):.1e}",
            f"{max(s.marginal_error for s in planned):.1e}",
            f"{1e3 * median(s.timings.total for s in planned):.3f}",
            min(s.guarantee for s in planned).name,
        )
    return table
