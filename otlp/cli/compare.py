"""``otlp compare``: every published rule under every draft scheme, on rows of a capture."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from otlp.cli.options import capture_argument, integers, names, open_capture, row_options
from otlp.cli.output import console, write_json, write_whole
from otlp.data.captures import Capture
from otlp.studies.compare import (
    BOUND,
    OPTIMUM,
    RULES,
    SCHEMES,
    Measurement,
    Summary,
    compare,
    draw,
    summarise,
)

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  otlp compare                                  all schemes and published rules, ten rows
  otlp compare --n 2,4,8 --schemes iid --rules naive,k-seq,auto --rows 50
  otlp compare mine.safetensors --temperature 0.6 --json accepted.json --figure accepted.png
  otlp compare --schemes greedy,hub,independent --n 2 --rules greedy,hub,max-flow --top-k 20
"""
)
@capture_argument
@click.option("--n", "drafts", callback=integers(1), default="1,2,3,4", show_default=True)
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True, help="How many.")
@click.option("--top-k", type=click.IntRange(1), help="Cut the draft to its k most likely tokens.")
@row_options
@click.option("--schemes", callback=names, default=",".join(SCHEMES), show_default=True)
@click.option("--rules", callback=names, default=",".join(RULES), show_default=True)
@click.option(
    "--time-limit", type=float, default=10.0, show_default=True, help="Seconds a solve, roughly."
)
@click.option("--json", "json_path", type=click.Path(), help="Write every measurement to a file.")
@click.option("--figure", "figure_path", type=click.Path(), help="Draw it (needs matplotlib).")
def command(
    capture: str | None,
    drafts: tuple[int, ...],
    rows: int,
    schemes: tuple[str, ...],
    rules: tuple[str, ...],
    time_limit: float,
    json_path: str | None,
    figure_path: str | None,
    **cut: Any,
) -> None:
    """Compare the exact acceptance of verification rules under every draft scheme.

    A line a rule, a column an n: the mean over rows of the probability that the verified token is
    one of the drafted ones, and its share of the optimum, which is that of the best rule for the
    scheme.  The information bound is the sum of min(p, probability of being drafted).
    "independent" drafts come from the draft at temperatures 1, 0.71, 1.41, 0.5, 2, ...

    All of it is exact, and takes milliseconds a row, but for recursive rejection without
    replacement with n = 3, which takes seconds.
    """
    data = open_capture(capture)
    measured = _run(data, min(rows, len(data)), drafts, schemes, rules, time_limit, cut)
    summaries = summarise(measured)
    synthetic = " (synthetic)" if data.synthetic else ""
    title = f"{data.target_model} / {data.draft_model}{synthetic}, {min(rows, len(data))} rows"
    console.print(f"Mean acceptance: {title}")
    for scheme in schemes:
        console.print(_table(scheme, [found for found in summaries if found.scheme == scheme]))
        console.print()
    for line in _reasons(summaries):
        console.print(f"[dim]{line}", soft_wrap=True)
    if json_path:
        write_json(json_path, list(map(_record, measured)))
    if figure_path:
        write_whole(figure_path, lambda path: draw(path, summaries, title))


def _run(
    data: Capture,
    rows: int,
    drafts: Sequence[int],
    schemes: Sequence[str],
    rules: Sequence[str],
    time_limit: float,
    cut: dict[str, Any],
) -> list[Measurement]:
    """Measure rows that are evenly spread over the capture, behind a progress bar."""
    pairs = (data.distributions(row * len(data) // rows, **cut) for row in range(rows))
    columns = (TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("comparing", total=rows * len(schemes) * len(drafts))
        return list(
            compare(
                pairs,
                drafts,
                schemes,
                rules,
                time_limit=time_limit,
                progress=lambda label: bar.update(task, advance=1, description=label),
            )
        )


def _table(scheme: str, summaries: Sequence[Summary]) -> Table:
    table = Table(title=scheme, title_justify="left", box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    sizes = sorted({found.n for found in summaries})
    for size in sizes:
        table.add_column(f"n = {size}", justify="right", no_wrap=True)
    by_rule: dict[str, dict[int, Summary]] = {}
    for found in summaries:
        by_rule.setdefault(found.rule, {})[found.n] = found
    for rule, cells in by_rule.items():
        style = {OPTIMUM: "bold", BOUND: "dim"}.get(rule)
        best = by_rule[OPTIMUM]
        table.add_row(rule, *(_cell(cells[n], best[n]) for n in sizes), style=style)
    return table


def _cell(found: Summary, best: Summary) -> str:
    if not found.rows:
        return "-"
    if found.rule in (OPTIMUM, BOUND) or found.rows != best.rows:
        return f"{found.acceptance:.4f}"
    share = found.acceptance / best.acceptance
    return f"{found.acceptance:.4f} " + ("100%" if share > 0.9995 else f"{share:.1%}")


def _reasons(summaries: Sequence[Summary]) -> list[str]:
    """Why rules are missing: a line for all rules, schemes and n that share a reason."""
    missing: dict[str, list[Summary]] = {}
    for found in summaries:
        if found.reason:
            # Reasons name the drafts, as IID(V=4096, n=1), and n.
            shared = re.sub(r"\w+\(V=.*?\)|n ?= ?\d+|\d+\.\de-\d+", "", found.reason)
            missing.setdefault(shared, []).append(found)
    return [
        f"{_list(found.rule for found in group)} on {_list(found.scheme for found in group)}, "
        f"n = {_list(found.n for found in group)}: {group[0].reason}"
        for group in missing.values()
    ]


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, dict.fromkeys(items)))


def _record(measurement: Measurement) -> dict[str, object]:
    record = asdict(measurement)
    if math.isnan(measurement.acceptance):
        record["acceptance"] = None  # JSON has no NaN
    return record
