"""Figure 5: times and failure rates of global resolution over the target's temperature.

    python bench/global_resolution/temperature.py

The target's temperature is from 0.2 to 1, the draft's is 1; tau = 1e-4.
"""

from __future__ import annotations

from itertools import product

import cases
import click
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from otlp.cli.options import rows_option
from otlp.cli.output import progress
from otlp.data.captures import builtin
from otlp.solvers import GlobalResolution
from otlp.studies.style import look

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
TAU = 1e-4

DRAFTS = (2, 3, 4, 5)

Cells = dict[str, dict[str, list[float]]]


def times(rows: list[int], ks: list[int], budget: float) -> dict[str, Cells]:
    """Return median ms and failure rates over the temperatures, by method and (k, n)."""
    capture = builtin()
    methods = [
        cases.conditional_of("as published", GlobalResolution.published(TAU)),
        cases.with_solver("this library", GlobalResolution(TAU)),
    ]
    cases.warm(methods, capture)
    result: dict[str, Cells] = {method.label: {} for method in methods}
    with progress("Figure 5", len(methods) * len(ks) * len(DRAFTS)) as step:
        for method, k, n in product(methods, ks, DRAFTS):
            step(f"{method.label}, ({k}, {n})")
            runs = []
            for temperature in TEMPERATURES:
                instances = list(cases.problems(capture, rows, k, n, temperature))
                runs.append(cases.measure(method, instances, np.inf, budget, repeats=1))
            result[method.label][f"({k}, {n})"] = {
                "all_ms": [1e3 * float(np.median([r.seconds for r in cell])) for cell in runs],
                "solved_ms": [cases.milliseconds(cell) for cell in runs],
                "failures": [1.0 - cases.success(cell) for cell in runs],
                "rows": [len(cell) for cell in runs],
            }
    return result


def draw(results: dict[str, Cells]) -> Figure:
    ks = sorted({int(size[1:].partition(",")[0]) for size in results["as published"]})
    figure = Figure(figsize=(7.6, 1.2 + 2.1 * len(ks)))
    grid = figure.subplots(len(ks), 2, sharex=True, sharey="col")
    for (times, failures), k in zip(grid, ks, strict=True):
        for n, (label, cells) in product(DRAFTS, results.items()):
            cell, style = cells[f"({k}, {n})"], "-" if label == "as published" else ":"
            line = {**look(f"{n}", [str(n) for n in DRAFTS]), "linestyle": style}
            times.semilogy(TEMPERATURES, cell["all_ms"], label=f"n = {n}, {label}", **line)
            failures.plot(TEMPERATURES, cell["failures"], **line)
        times.set(title=f"top {k:,}: median ms per token")
        failures.set(title=f"top {k:,}: failure rate, tau = 1e-4", ylim=(-0.03, 1.03))
    for panel in grid[-1]:
        panel.set_xlabel("target temperature")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(20)
@click.option("--budget", default=1.0, help="Seconds per method and point.")
def main(rows: int, budget: float) -> None:
    capture = builtin()
    ks = [10, 100, 1000, cases.widest(capture)]
    results = times(cases.spread(capture, rows), ks, budget)
    heads = (f"T = {t}" for t in TEMPERATURES)
    table = Table("method", "(k, n)", *heads, title="Median ms per token, failure rate, tau 1e-4")
    for label, cells in results.items():
        for size, cell in cells.items():
            pairs = zip(cell["all_ms"], cell["failures"], strict=True)
            shown = (f"{cases.shown(ms)} ({100 * rate:.0f}%)" for ms, rate in pairs)
            table.add_row(label, size, *shown)
    cases.console.print(table)
    content = {"rows": rows, "temperatures": TEMPERATURES, "cells": results}
    cases.write("figure_5", content, draw(results))


if __name__ == "__main__":
    main()
