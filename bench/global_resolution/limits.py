"""Table 2: the best acceptance that each solver reaches within 10 and 100 ms a token.

    python bench/global_resolution/limits.py

Global resolution falls back on an exact solver where it fails, as in the paper, and pays for it.
"""

from __future__ import annotations

import math
from itertools import product

import cases
import click
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

import otlp
from otlp.cli.options import rows_option
from otlp.cli.output import progress
from otlp.data.captures import Capture, builtin
from otlp.data.synthetic import generate
from otlp.solvers import GlobalResolution, Slackness
from otlp.studies.style import BLUE, SKY

LIMITS = (10.0, 100.0)
COUNTS = range(2, 9)

# Llama-3 70B/8B and Gemma-2 27B/2B, percent: LP, max-flow, global resolution at 1e-3 and 1e-4.
PAPER = cases.PAPER["limits"]

Best = dict[str, tuple[float, str, float]]
"""For each limit: acceptance, setting, milliseconds."""


def published_with_fallback(tau: float, fallback: cases.Method) -> cases.Method:
    """Algorithm 1 for the drafted tuple; where it fails, the exact solver's time on top.

    The acceptance is that of the published plan where both its systems succeed, else the optimum,
    from which it then differs by at most 5 tau.
    """
    solver = GlobalResolution.published(tau)
    piece = cases.conditional_of(f"global resolution, tau {tau:g}", solver)

    def run(problem: otlp.Problem) -> cases.Run:
        first = piece.run(problem)
        seconds = first.seconds if first.solved else first.seconds + fallback.run(problem).seconds
        whole = solver.solve(problem)
        acceptance = whole.acceptance if whole.plan else otlp.optimal_acceptance(problem)
        return cases.Run(seconds, acceptance, "SOLVED")

    return cases.Method(piece.label, run, fallback.size)


def best_within(
    method: cases.Method, capture: Capture, rows: list[int], most_arcs: float, budget: float
) -> Best:
    best = {str(limit): (math.nan, "none", math.nan) for limit in LIMITS}
    for k in (10, 30, 100, 300, 1000, cases.widest(capture)):
        for n in COUNTS:
            instances = list(cases.problems(capture, rows, k, n))
            runs = cases.measure(method, instances, most_arcs, budget)
            if not runs or not all(run.solved for run in runs):
                break
            mean = 1e3 * float(np.mean([run.seconds for run in runs]))
            optima = np.array([otlp.optimal_acceptance(case) for case in instances])
            lost = np.mean(optima[: len(runs)] - [run.acceptance for run in runs])
            acceptance = float(optima.mean() - lost)
            for limit in LIMITS:
                if mean <= limit and not acceptance <= best[str(limit)][0]:
                    best[str(limit)] = (acceptance, f"({k}, {n})", mean)
            if mean > LIMITS[-1]:
                break
    return best


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(20)
@click.option("--budget", default=1.5, help="Seconds for a method at a size.")
@click.option("--most-arcs", default=6e5, help="Largest network or LP to try.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    captures = {"captured": builtin(), "synthetic": generate(rows, 4096)}
    flow = cases.unmerged_flow()
    methods = [
        cases.unmerged_lp(2.0),
        flow,
        *(published_with_fallback(tau, flow) for tau in cases.TAUS),
        *(method for method in cases.own_methods() if not method.label.startswith("global")),
    ]
    for tau in cases.TAUS:
        solver = GlobalResolution(tau, fallback=Slackness())
        methods.append(cases.with_solver(f"global-resolution, tau {tau:g}", solver))
    cases.warm(methods, captures["captured"])
    content: dict[str, dict[str, Best]] = {name: {} for name in captures}
    with progress("Table 2", len(captures) * len(methods)) as step:
        for (name, capture), method in product(captures.items(), methods):
            step(f"{name}, {method.label}")
            chosen = cases.spread(capture, rows)
            content[name][method.label] = best_within(method, capture, chosen, most_arcs, budget)
    for name, results in content.items():
        show(results, cases.describe(captures[name], rows))
    cases.write("table_2", {"rows": rows, "best": content, "paper": PAPER}, draw(content))


def draw(content: dict[str, dict[str, Best]]) -> Figure:
    """Best acceptance of each method, a panel a capture, light for 10 ms and dark for 100 ms."""
    figure = Figure(figsize=(7.6, 6.2))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, results) in zip(panels, content.items(), strict=True):
        places = np.arange(len(results))
        for limit, shift, colour in zip(LIMITS, (-0.2, 0.2), (SKY, BLUE), strict=True):
            # What no size gave is NaN, stored as null.
            best = [cells[str(limit)] for cells in results.values()]
            heights = 100.0 * np.array([cell[0] for cell in best], dtype=float)
            bars = axes.barh(places + shift, heights, 0.38, color=colour, label=f"{limit:g} ms")
            settings = [cell[1] for cell in best]
            axes.bar_label(bars, settings, fontsize=8, padding=2)
        axes.set_yticks(places, list(results), fontsize=9)
        axes.set(title=name, xlim=(0, 150), xticks=range(0, 101, 25))
    panels[0].invert_yaxis()
    figure.supxlabel("best acceptance within the limit, percent", fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def show(results: dict[str, Best], title: str) -> None:
    heads = [f"{limit:g} ms" for limit in LIMITS]
    heads += [f"paper, {head}" for head in heads]
    table = Table("method", *heads, title=f"Best acceptance within a mean time, {title}")
    for label, best in results.items():
        ours = [
            f"{100 * a:.2f}% at {setting}, {cases.shown(ms)} ms" for a, setting, ms in best.values()
        ]
        paper = next((PAPER[name] for name in PAPER if label.startswith(name)), {})
        theirs = [" / ".join(f"{x:g}%" for x in pair) for pair in paper.values()]
        table.add_row(label, *ours, *theirs)
    cases.console.print(table)


if __name__ == "__main__":
    main()
