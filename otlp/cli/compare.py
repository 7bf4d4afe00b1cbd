"""``otlp compare``: every published rule under every draft scheme, on rows of a capture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otlp.cli.options import (
    ListOf,
    capture_argument,
    figure_option,
    json_option,
    open_capture,
    row_options,
    rows_option,
    say_truncations,
    spread,
    time_limit_option,
    truncations,
    workers,
    workers_options,
)
from otlp.cli.output import console, progress, table, write_json, write_whole
from otlp.drafts.by_name import SCHEMES
from otlp.studies.compare import BOUND, OPTIMUM, RULES, Summary, compare, summarise
from otlp.studies.figures import draw_acceptance


@click.command(
    epilog="""\b
Examples:
  otlp compare                                  all schemes and published rules, ten rows
  otlp compare --n 2,4,8 --schemes iid --rules naive,k-seq,auto --rows 50
  otlp compare mine.safetensors --temperature 0.6 --json accepted.json --figure accepted.png
  otlp compare --rows 160 --jobs 4                       four processes, the same numbers
  otlp compare --schemes greedy,hub,independent --n 2 --rules greedy,hub,max-flow --top-k 20
"""
)
@capture_argument
@click.option("--n", "drafts", type=ListOf(click.IntRange(1)), default="1,2,3,4")
@rows_option(10)
@row_options()
@click.option("--schemes", type=ListOf(str), default=",".join(SCHEMES))
@click.option("--rules", type=ListOf(str), default=",".join(RULES))
@time_limit_option(10.0)
@workers_options
@json_option("Write the acceptance on every row to a file.")
@figure_option("Draw the acceptance over n.")
def command(
    capture: str | None,
    drafts: tuple[int, ...],
    rows: int,
    schemes: tuple[str, ...],
    rules: tuple[str, ...],
    time_limit: float,
    jobs: int | None,
    scheduler: str | None,
    json_path: Path | None,
    figure_path: Path | None,
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
    chosen = spread(data, rows)
    pairs = (data.distributions(row, **cut) for row in chosen)
    total = len(chosen) * len(schemes) * len(drafts)
    with workers(jobs, scheduler), progress("comparing", total) as step:
        measured = list(
            compare(pairs, drafts, schemes, rules, time_limit=time_limit, jobs=jobs, progress=step)
        )
    summaries = summarise(measured)
    synthetic = " (synthetic)" if data.synthetic else ""
    title = f"{data.target_model} / {data.draft_model}{synthetic}, {len(chosen)} rows"
    if json_path:
        write_json(json_path, [asdict(found) for found in measured])
    if figure_path:
        write_whole(figure_path, lambda path: draw_acceptance(path, summaries, title))
    console.print(f"Mean acceptance: {title}")
    for scheme in schemes:
        console.print(_table(scheme, [found for found in summaries if found.scheme == scheme]))
        console.print()
    say_truncations(data, truncations(data, chosen, **cut))
    for line in _reasons(summaries):
        console.print(line, soft_wrap=True, style="dim")
    if any(found.partial for found in summaries):
        console.print("*: a mean over fewer rows than the optimum's.", style="dim")


def _table(scheme: str, summaries: Sequence[Summary]) -> Table:
    sizes = sorted({found.n for found in summaries})
    left = {"title": scheme, "title_justify": "left", "pad_edge": False}
    made = table("rule", *(f"n = {size}" for size in sizes), box=None, **left)
    by_rule: dict[str, dict[int, Summary]] = {}
    for found in summaries:
        by_rule.setdefault(found.rule, {})[found.n] = found
    for rule, cells in by_rule.items():
        style = {OPTIMUM: "bold", BOUND: "dim"}.get(rule)
        best = by_rule[OPTIMUM]
        made.add_row(rule, *(_cell(cells[n], best[n]) for n in sizes), style=style)
    return made


def _cell(found: Summary, best: Summary) -> str:
    if not found.rows:
        return "-"
    if found.partial:
        return f"{found.acceptance:.4f}*"
    if found.rule in (OPTIMUM, BOUND) or best.partial:
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
