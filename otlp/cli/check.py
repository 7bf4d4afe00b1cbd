"""``otlp check``: every solver on the same rows, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from otlp.cli.options import (
    ListOf,
    Positive,
    capture_argument,
    open_capture,
    problem,
    row_options,
    rows_option,
    say_truncations,
    scheme_option,
    spread,
    time_limit_option,
    truncations,
)
from otlp.cli.output import console, progress, table
from otlp.solution import Solution
from otlp.solvers import SOLVERS, with_time_limit
from otlp.studies.attempt import warm
from otlp.studies.benchmark import small_problems
from otlp.studies.crosscheck import CrossCheck, cross_check


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
@rows_option(10)
@click.option("--n", type=int, default=2, help="Number of drafts.")
@scheme_option
@row_options(top_k=10)
@click.option("--solvers", type=ListOf(str), help="Comma-separated names [default: all].")
@click.option(
    "--tolerance",
    type=Positive(),
    default=1e-7,
    help="By how much an acceptance may exceed the bounds that others certify.",
)
@time_limit_option(10.0)
def command(
    capture: str | None,
    rows: int,
    n: int,
    solvers: tuple[str, ...] | None,
    tolerance: float,
    time_limit: float,
    **cut: Any,
) -> None:
    """Cross-check solvers on rows of a capture; exit status 1 if they disagree.

    Every solver certifies that the optimum lies between the acceptance of its plan and an upper
    bound: what one accepts must stay below the bounds of all, within the tolerance. Optimal answers
    thus agree within what each certifies, 1e-6 for some. Every plan must follow the target.
    """
    data = open_capture(capture)
    chosen = solvers or tuple(name for name in SOLVERS if name != "auto")
    numbers = spread(data, rows)
    instances = [problem(data, row, n, **cut) for row in numbers]
    warm([with_time_limit(name, time_limit) for name in chosen], small_problems(data))
    checks: dict[int, CrossCheck] = {}
    with progress("checking", len(instances)) as step:
        for row, instance in zip(numbers, instances, strict=True):
            checks[row] = cross_check(instance, chosen, tolerance, time_limit)
            step(f"row {row}")
    title = f"{len(checks)} rows, top-k {cut['top_k']}, n = {n}, {cut['scheme']} drafts"
    solutions = {name: _solutions(checks, name) for name in chosen}
    console.print(_table(solutions, title))
    for name in chosen:
        if not solutions[name]:
            reason = checks[numbers[0]].attempts[name].reason
            console.print(f"{name}: {reason}", style="dim")
    say_truncations(data, truncations(data, numbers, **cut))
    wrong = [f"row {row}: {text}" for row, found in checks.items() for text in found.complaints]
    for complaint in wrong:
        console.print(complaint, style="red")
    if wrong:
        raise SystemExit(1)
    console.print(f"All agree within {tolerance:g} on {len(checks)} rows.")


def _table(solutions: Mapping[str, Sequence[Solution]], title: str) -> Table:
    heads = ("rows", "acceptance", "gap", "marginal error", "ms", "guarantee")
    made = table("solver", *heads, title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name, planned in solutions.items():
        if planned:
            made.add_row(
                name,
                str(len(planned)),
                f"{fmean(s.acceptance for s in planned):.7f}",
                f"{max(s.gap for s in planned):.1e}",
                f"{max(s.marginal_error for s in planned):.1e}",
                f"{1e3 * median(s.timings.total for s in planned):.3f}",
                min(s.guarantee for s in planned).name,
            )
    made.caption = "mean acceptance, largest gap and marginal error, median time"
    return made


def _solutions(checks: Mapping[int, CrossCheck], name: str) -> list[Solution]:
    """The solutions of one solver that have a plan."""
    found = (check.attempts[name].solution for check in checks.values())
    return [one for one in found if one is not None and one.plan is not None]
