"""``otlp check``: cross-check all solvers on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.table import Table

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.exit_status import CheckFailed
from otlp.cli.output import console, note, progress, show, table, write_result
from otlp.cli.rows import ChosenRows
from otlp.solution import Guarantee, Solution
from otlp.solvers import SOLVERS, line_up
from otlp.studies.attempt import warm
from otlp.studies.crosscheck import CrossCheck, cross_check


@options.grouped_command(
    epilog="""\b
Examples:
  otlp check                                  ten rows, top-k 10, n = 2, all solvers
  otlp check --top-k 20 --n 3 --rows 5
  otlp check --scheme independent --n 3
  otlp check --solvers max-flow,slackness --engine ortools --engine graph-tool
  otlp check --solvers martingale,max-flow --top-k 100 --tolerance 1e-9
"""
)
@capture_argument
@options.rows_option(10)
@options.n_option(2)
@options.scheme_option()
@options.row_options(top_k=10)
@options.solvers_option(None)
@options.engine_option(multiple=True)
@options.tolerance_option(1e-7)
@options.time_limit_option(10.0)
@options.json_option("Write the comparison to a file.")
def command(
    capture: CaptureFile,
    rows: int,
    n: int,
    solvers: tuple[str, ...] | None,
    engine: tuple[str, ...],
    tolerance: float,
    time_limit: float,
    json_path: Path | None,
    **cut: Any,
) -> None:
    """Cross-check solvers on rows of a capture; exit status 1 if they disagree.

    Every solver certifies that the optimum lies between the acceptance of its plan and an upper
    bound. Each acceptance must be at most the upper bound of every solver plus the tolerance. The
    acceptances of two optimal solvers therefore differ by at most their certified gaps (1e-6 for
    some solvers) and the tolerance. The output of every plan must follow the target.
    """
    spread = ChosenRows.spread(capture, rows)
    numbers = spread.numbers
    names = solvers or tuple(name for name in SOLVERS if name != "auto")
    chosen = line_up(names, time_limit, engine)
    instances = [spread.problem(row, n, **cut) for row in numbers]
    checks: dict[int, CrossCheck] = {}
    with progress("warming up", len(chosen) + len(instances)) as step:
        for name, solver in chosen.items():
            warm(solver)
            step(f"warming up {name}")
        for row, instance in zip(numbers, instances, strict=True):
            checks[row] = cross_check(instance, chosen, tolerance)
            step(f"row {row}")
    solutions = {name: _solutions(checks, name) for name in chosen}
    lines = {name: _summary(found) for name, found in solutions.items() if found}
    reasons = {
        name: checks[numbers[0]].attempts[name].reason for name in chosen if name not in lines
    }
    complaints = [(row, text) for row, found in checks.items() for text in found.complaints]
    inputs = {**spread.chosen, "n": n, **cut, "tolerance": tolerance}
    found = {
        "agree": not complaints,
        "complaints": [{"row": row, "text": text} for row, text in complaints],
        "solvers": [{"solver": name, **line} for name, line in lines.items()],
        "left_out": [{"solver": name, "reason": reason} for name, reason in reasons.items()],
    }
    write_result(json_path, "check", {**inputs, **found})
    top = f"top-k {cut['top_k']}" if cut["top_k"] else "all tokens"
    console.print(f"{spread.choice}, {top}, n = {n}, {cut['scheme']} drafts\n")
    show(_table(lines))
    note(
        "\nMean acceptance, maximum gap and marginal error, median milliseconds of the plan, and "
        "of plan and certificate."
    )
    for name, reason in reasons.items():
        note(f"{name}: {reason}")
    spread.print_truncation(spread.truncations(**cut))
    for row, text in complaints:
        console.print(f"row {row}: {text}", style="red")
    if complaints:
        raise CheckFailed
    best = [name for name, line in lines.items() if line["guarantee"] == Guarantee.OPTIMAL.name]
    others = [name for name in lines if name not in best]
    console.print(
        f"No disagreement on {len(checks)} rows: no acceptance exceeds an upper bound by more than "
        f"{tolerance:g}."
    )
    console.print(f"Optimal solvers, with equal acceptance: {', '.join(best) or 'none'}.")
    if others:
        console.print(f"Other rules, with possibly lower acceptance: {', '.join(others)}.")


def _summary(planned: Sequence[Solution]) -> dict[str, Any]:
    """Summarise the solutions of a solver for the table and for `write_result`."""
    return {
        "row_count": len(planned),
        "acceptance": fmean(one.acceptance for one in planned),
        "gap": max(one.gap for one in planned),
        "marginal_error": max(one.marginal_error for one in planned),
        "plan_seconds": median(one.timings.plan for one in planned),
        "total_seconds": median(one.timings.total for one in planned),
        "guarantee": min(one.guarantee for one in planned).name,
    }


def _table(lines: Mapping[str, Mapping[str, Any]]) -> Table:
    times = "ms,\nplan", "ms, with\ncertificate"
    made = table("solver", "rows", "acceptance", "gap", "marginal\nerror", *times, "guarantee")
    for name, line in lines.items():
        made.add_row(
            name,
            str(line["row_count"]),
            f"{line['acceptance']:.7f}",
            f"{line['gap']:.1e}",
            f"{line['marginal_error']:.1e}",
            f"{1e3 * line['plan_seconds']:.3f}",
            f"{1e3 * line['total_seconds']:.3f}",
            line["guarantee"],
        )
    return made


def _solutions(checks: Mapping[int, CrossCheck], name: str) -> list[Solution]:
    """Return the solutions of one solver that have a plan."""
    found = (check.attempts[name].solution for check in checks.values())
    return [one for one in found if one is not None and one.plan is not None]
