"""Tables 1 and 3: times and success rates over (k, n).

    python bench/global_resolution/times.py

Each method runs as in the paper (separate tuples, its limits, L-BFGS-B, one system per token) and
as in this library (tuples merged by set, lumps, Newton steps, the whole plan).
"""

from __future__ import annotations

from typing import Any

import cases
import click
import numpy as np
from matplotlib.figure import Figure

import otlp
from otlp.cli.options import rows_option
from otlp.cli.output import progress, table
from otlp.data.captures import Capture, builtin
from otlp.data.synthetic import generate
from otlp.reductions.complementary_slackness import split
from otlp.reductions.truncation import truncation
from otlp.solvers import GlobalResolution
from otlp.solvers.global_resolution.global_resolution import PAPER_LIMITS

SIZES = [(10, 2), (10, 3), (10, 4), (10, 5), (100, 2), (100, 3), (1000, 2)]

# Milliseconds per token for Llama-3 (Table 1) and Gemma-2 (Table 3), some are lower bounds in the
# paper; success rates in percent for global resolution.
PAPER: dict[str, list[str]] = cases.PAPER["times"]
SUCCESS: dict[str, list[tuple[float, float]]] = cases.PAPER["success"]

Times = dict[str, list[list[cases.Run]]]


def cells(rows: int, budget: float, most_arcs: float) -> tuple[Times, list[dict[str, float]]]:
    capture, synthetic = builtin(), generate(100, 4096)
    whole_plans = [
        cases.with_solver(f"whole published plan, tau {tau:g}", GlobalResolution.published(tau))
        for tau in cases.TAUS
    ]
    methods = [*cases.paper_methods(time_limit=budget), *whole_plans, *cases.own_methods()]
    cases.warm(methods, capture)
    results: Times = {method.label: [] for method in methods}
    rates = []
    with progress("Tables 1 and 3", len(SIZES) * len(methods)) as step:
        for k, n in SIZES:
            instances = list(cases.problems(capture, cases.spread(capture, rows), k, n))
            rates.append(success_rates(capture, synthetic, k, n))
            for method in methods:
                step(f"({k}, {n}) {method.label}")
                done = results[method.label]
                if hopeless(done, k, n, budget):
                    done.append([])
                else:
                    done.append(cases.measure(method, instances, most_arcs, budget))
    return results, rates


def hopeless(done: list[list[cases.Run]], k: int, n: int, budget: float) -> bool:
    """Return whether a size with smaller k and n already used up its seconds."""
    smaller = [runs for (a, b), runs in zip(SIZES, done, strict=False) if a <= k and b <= n]
    return any(not runs or runs[-1].seconds > budget / 4 for runs in smaller)


def success_rates(capture: Capture, synthetic: Capture, k: int, n: int) -> dict[str, float]:
    """Return success rates of Algorithm 1 for a drafted tuple at tau 1e-3, with failure reasons."""
    method = cases.conditional_of("", GlobalResolution.published(1e-3))
    instances = list(cases.problems(capture, range(len(capture)), k, n))
    runs = [method.run(case) for case in instances]
    others = [method.run(case) for case in cases.problems(synthetic, range(len(synthetic)), k, n)]
    inner = np.array([inner_size(case, 1e-3) for case in instances])
    return {
        "captured": cases.success(runs),
        "synthetic": cases.success(others),
        "for_size": sum(run.status == "TRUNCATION_LIMIT" for run in runs) / len(runs),
        "inner_50": float(np.median(inner)),
        "inner_within": float((inner <= PAPER_LIMITS[n]).mean()),
    }


def inner_size(problem: otlp.Problem, tau: float) -> int:
    """Return |T| of the inner system."""
    inner = split(problem).inner
    drafts: Any = problem.drafts
    return truncation(drafts.draft, problem.n, inner.subset, inner.ignored, tau)[0].size


def print_table(results: Times) -> None:
    title = "Median ms per token (success rate; runs if not all rows)"
    made = table("method", *map(str, SIZES), title=title)
    made.columns[0].no_wrap = False
    most = max(len(runs) for row in results.values() for runs in row)
    for label, row in results.items():
        made.add_row(label, *(_cell(runs, most) for runs in row))
    made.add_section()
    for label, texts in PAPER.items():
        rates = SUCCESS.get(label.removeprefix("global resolution, "))
        extra = [f" ({a:g}%)" for a, _ in rates] if rates else [""] * len(texts)
        made.add_row(f"paper: {label}", *(t + e for t, e in zip(texts, extra, strict=True)))
    cases.console.print(made)


def _cell(runs: list[cases.Run], most: int) -> str:
    if not runs:
        return "-"
    rate = cases.success(runs)
    text = cases.shown(cases.milliseconds(runs))
    if rate < 1.0:
        text += f" ({100 * rate:.0f}%)"
    return text + (f" n={len(runs)}" if len(runs) < most else "")


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(40)
@click.option("--budget", default=6.0, help="Seconds per method and size.")
@click.option("--most-arcs", default=2e6, help="Maximum number of arcs of a network or LP.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    results, rates = cells(rows, budget, most_arcs)
    cases.console.print(cases.describe(builtin(), rows))
    print_table(results)
    content: dict[str, list[dict[str, Any]]] = {label: [] for label in results}
    for label, row in results.items():
        for (k, n), runs in zip(SIZES, row, strict=True):
            ms, rate = cases.milliseconds(runs), cases.success(runs)
            cell = {"k": k, "n": n, "runs": len(runs), "median_ms": ms, "success": rate}
            content[label].append(cell)
    stored = {"rows": rows, "methods": content, "success_rates": rates, "paper": PAPER}
    cases.write("tables_1_3", stored, draw(content))


def draw(methods: dict[str, list[dict[str, Any]]]) -> Figure:
    """Draw median milliseconds over (k, n): dashed as in the paper, solid this library."""
    figure = Figure(figsize=(9.5, 4.5))
    axes = figure.subplots()
    for label, cells in methods.items():
        if not label.startswith("whole published"):
            axes.plot([cell["median_ms"] for cell in cells], label=label, **cases.look_of(label))
    axes.set_yscale("log")
    axes.set_xticks(range(len(SIZES)), map(str, SIZES))
    axes.set(xlabel="(k, n)", ylabel="median ms per token, of the solved rows")
    figure.legend(loc="outside right center", title="dashed: as in the paper")
    return figure


if __name__ == "__main__":
    main()
