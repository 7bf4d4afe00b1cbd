"""Acceptance against time per token of every solver, one panel per (k, n).

    python bench/global_resolution/acceptance_against_time.py

A row on which a solver fails counts with the acceptance of sampling from the target, the fallback
of the paper (Appendix R).
"""

from __future__ import annotations

import math
from typing import Any

import cases
import click
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import otlp
from otlp.cli.options import rows_option
from otlp.cli.output import progress
from otlp.data.captures import builtin
from otlp.solvers import SOLVERS, GlobalResolution
from otlp.solvers.solver import Solver

SIZES = [(10, 3), (100, 2), (100, 3), (1000, 2), (1000, 4), (1500, 4)]
LEFT_OUT = {"auto", "hub", "greedy", "global-resolution"}


Point = tuple[float, float, float]
"""Milliseconds, acceptance, success rate."""


def line_up() -> list[cases.Method]:
    methods = [cases.unmerged_lp(5.0), cases.unmerged_flow()]
    solvers: dict[str, Solver] = {}
    for tau in cases.TAUS:
        published = GlobalResolution.published(tau)
        solvers[f"global resolution as published, tau {tau:g}"] = published
        solvers[f"global-resolution, tau {tau:g}"] = GlobalResolution(tau)
    solvers |= {name: kind() for name, kind in SOLVERS.items() if name not in LEFT_OUT}
    return methods + [cases.with_solver(label, solver) for label, solver in solvers.items()]


def target_sampling(problem: otlp.Problem) -> float:
    """Return the probability that a token drawn from the target is among the drafts."""
    return float(problem.target @ problem.drafts.inclusion)


def point(instances: list[otlp.Problem], runs: list[cases.Run]) -> tuple[float, float]:
    """Return median milliseconds, and the acceptance scaled to the optimum of all rows."""
    found = [
        run.acceptance if run.solved and not math.isnan(run.acceptance) else target_sampling(case)
        for case, run in zip(instances, runs, strict=False)
    ]
    best = [otlp.optimal_acceptance(case) for case in instances[: len(runs)]]
    share = float(np.sum(found) / np.sum(best))
    milliseconds = 1e3 * float(np.median([run.seconds for run in runs]))
    return milliseconds, cases.mean_optimum(instances) * share


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(20)
@click.option("--budget", default=2.0, help="Seconds per method and size.")
@click.option("--most-arcs", default=2e6, help="Maximum number of arcs of a network or LP.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    capture = builtin()
    methods = line_up()
    cases.warm(methods, capture)
    points: dict[str, dict[str, Point]] = {}
    optima = {}
    with progress("Acceptance against time", len(SIZES) * len(methods)) as step:
        for k, n in SIZES:
            size = f"({k}, {n})"
            instances = list(cases.problems(capture, cases.spread(capture, rows), k, n))
            optima[size] = cases.mean_optimum(instances)
            points[size] = {}
            for method in methods:
                step(f"{size} {method.label}")
                limit = 1e5 if method.label.startswith(("LP", "linear")) else most_arcs
                runs = cases.measure(method, instances, limit, budget)
                if runs:
                    points[size][method.label] = (*point(instances, runs), cases.success(runs))
    table = Table(
        "method", *points, title=f"Median ms: acceptance, {cases.describe(capture, rows)}"
    )
    for method in methods:
        cells = [points[size].get(method.label) for size in points]
        table.add_row(
            method.label, *(f"{cases.shown(c[0])}: {100 * c[1]:.2f}%" if c else "-" for c in cells)
        )
    table.add_row("optimum", *(f"{100 * value:.2f}%" for value in optima.values()))
    cases.console.print(table)
    content = {"rows": rows, "optimum": optima, "points": points}
    cases.write("acceptance_against_time", content, draw(content))


def draw(content: dict[str, Any]) -> Figure:
    """Draw one panel per size; points below the panel are on its lower edge, with their value."""
    points, optima = content["points"], content["optimum"]
    labels = dict.fromkeys(label for cell in points.values() for label in cell)
    figure = Figure(figsize=(7.6, 7.4))
    style = {
        label: {"markersize": 7.0} | cases.look_of(label) | {"linestyle": ""} for label in labels
    }
    handles = {}
    panels = figure.subplots(2, 3, sharex=True)
    for axes, (size, found) in zip(panels.flat, points.items(), strict=True):
        top, bottom = 102 * optima[size], 88 * optima[size]
        axes.axhline(100 * optima[size], color="black", linewidth=0.8, linestyle="--")
        below: dict[str, list[float]] = {}
        for label, (ms, acceptance, _) in found.items():
            height = max(100 * acceptance, bottom)
            handles[label] = axes.plot(ms, height, label=label, clip_on=False, **style[label])[0]
            if height > 100 * acceptance:
                below.setdefault(f"{100 * acceptance:.0f}", []).append(ms)
        # Write equal values once; neighbours alternate between two heights.
        for place, number in enumerate(sorted(below, key=lambda number: min(below[number]))):
            middle = (math.prod(below[number]) ** (1 / len(below[number])), bottom)
            above = (0, 7 + 13 * (place % 2))
            axes.annotate(number, middle, above, textcoords="offset points", ha="center")
        k, n = size[1:-1].split(", ")
        axes.set(xscale="log", xlim=(0.01, 3000), ylim=(bottom, top))
        axes.set_title(f"top {int(k):,} tokens, n = {n}", fontsize=10)
    for axes in panels[1]:
        axes.set_xlabel("median ms per token")
    for axes in panels[:, 0]:
        axes.set_ylabel("acceptance, percent")
    title = (
        "dashed: the optimum; hollow: as in the paper; on the lower edge: points below, with value"
    )
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=2, title=title)
    return figure


if __name__ == "__main__":
    main()
