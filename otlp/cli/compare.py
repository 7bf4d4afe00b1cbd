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
    capture_argument,
    figure_option,
    json_option,
    n_option,
    open_capture,
    row_options,
    rows_option,
    rules_option,
    say_truncations,
    schemes_option,
    source,
    time_limit_option,
    truncations,
    workers,
    workers_options,
)
from otlp.cli.output import console, note, progress, show, table, write_result, write_whole
from otlp.data.spread_rows import choice_of_rows, spread_rows
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
@n_option("1,2,3,4")
@rows_option(10)
@row_options()
@schemes_option(",".join(SCHEMES))
@rules_option(",".join(RULES))
@time_limit_option(10.0)
@workers_options
@json_option("Write the acceptance on every row to a file.")
@figure_option("Draw the acceptance over n.")
def command(
    capture: str | None,
    n: tuple[int, ...],
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
    """Compare the acceptance of verification rules under every draft scheme.

    A line a rule, a column an n: the mean over rows of the probability that the verified token is
    one of the drafted ones, and its share of the optimum, which is that of the best rule for the
    scheme.  The information bound is the sum of min(p, probability of being drafted).
    "independent" drafts come from the draft at temperatures 1, 0.71, 1.41, 0.5, 2, ...

    A row of 4,096 tokens takes about half a second.  All of it is exact, but for recursive
    rejection without replacement, whose acceptance is estimated where a million sequences of
    rejected tokens are not enough: for n = 3 and 1,000 tokens.
    """
    data = open_capture(capture)
    chosen = spread_rows(len(data), rows)
    choice = choice_of_rows(len(data), len(chosen))
    pairs = (data.distributions(row, **cut) for row in chosen)
    total = len(chosen) * len(schemes) * len(n)
    with workers(jobs, scheduler) as where, progress("comparing", total) as step:
        measured = list(
            compare(pairs, n, schemes, rules, time_limit=time_limit, progress=step, **where)
        )
    summaries = summarise(measured)
    synthetic = " (synthetic)" if data.synthetic else ""
    title = f"{data.target_model} / {data.draft_model}{synthetic}, {choice}"
    results = [asdict(found) | {"row": chosen[found.row]} for found in measured]
    asked = {"rows": chosen, "row_choice": choice, **cut, "time_limit_seconds": time_limit}
    write_result(json_path, "compare", {**source(capture, data), **asked, "results": results})
    if figure_path:
        write_whole(figure_path, lambda path: draw_acceptance(path, summaries, title))
    console.print(f"Mean acceptance: {title}")
    for scheme in schemes:
        console.print(f"\n{scheme}")
        show(_table([found for found in summaries if found.scheme == scheme]))
    console.print()
    say_truncations(data, truncations(data, chosen, **cut))
    for line in _reasons(summaries):
        note(line)
    if any(found.partial for found in summaries):
        note("*: a mean over fewer rows than the optimum's.")


def _table(summaries: Sequence[Summary]) -> Table:
    sizes = sorted({found.n for found in summaries})
    made = table("rule", *(f"n = {size}" for size in sizes))
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
