"""Table 2: best acceptance of each solver within 10, 50 and 100 ms per token.

    python bench/global_resolution/limits.py

Times are the processor time of the plan without the certificate, the minimum of five runs for each
row, so other load on the machine has little effect.  The table contains the best setting within a
limit and the fastest better setting beyond the limit.  Global resolution falls back to an exact
solver if it fails, as in the paper, and its time includes the fallback.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from time import process_time

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
from otlp.solution import SolveError
from otlp.solvers import GlobalResolution, Martingale, MaxFlow, Slackness
from otlp.solvers.solver import Solver
from otlp.studies.style import BLUE, GREEN, SKY

LIMITS = (10.0, 50.0, 100.0)
REPEATS = 5
COUNTS = range(2, 9)

# Percent for Llama-3 70B/8B and Gemma-2 27B/2B: LP, max-flow, global resolution at 1e-3 and 1e-4.
PAPER = cases.PAPER["limits"]

Best = dict[str, tuple[float, str, float, str, float]]
"""For each limit: acceptance, setting, milliseconds; the next better setting, its milliseconds."""


def in_processor_time(method: cases.Method) -> cases.Method:
    """Return the method with the processor time of its whole run."""

    def run(problem: otlp.Problem) -> cases.Run:
        start = process_time()
        found = method.run(problem)
        return replace(found, seconds=process_time() - start)

    return replace(method, run=run)


def of_plan(label: str, solver: Solver) -> cases.Method:
    """Return a solver of the library, in processor time, without its certificate."""

    def run(problem: otlp.Problem) -> cases.Run:
        start = process_time()
        try:
            plan = solver.write(problem).finished()
        except SolveError as error:
            return cases.Run(process_time() - start, math.nan, error.solution.status.name)
        seconds = process_time() - start
        return cases.Run(seconds, float(plan.marginals().acceptance.sum()), "SOLVED")

    return replace(cases.with_solver(label, solver), run=run)


def published_with_fallback(tau: float, fallback: cases.Method) -> cases.Method:
    """Return Algorithm 1 for the drafted tuple, plus the time of an exact solver if it fails.

    The acceptance is that of the published plan if both its systems succeed, else the optimum; the
    two differ by at most 5 tau.
    """
    solver = GlobalResolution.published(tau)
    piece = in_processor_time(cases.conditional_of(f"global resolution, tau {tau:g}", solver))

    def run(problem: otlp.Problem) -> cases.Run:
        first = piece.run(problem)
        seconds = first.seconds if first.solved else first.seconds + fallback.run(problem).seconds
        whole = solver.solve(problem)
        acceptance = whole.acceptance if whole.plan else otlp.optimal_acceptance(problem)
        return cases.Run(seconds, acceptance, "SOLVED")

    return cases.Method(piece.label, run, fallback.size)


NOTHING = (math.nan, "none", math.nan)


def best_within(
    method: cases.Method, capture: Capture, rows: list[int], most_arcs: float, budget: float
) -> Best:
    cells = []
    for k in (10, 30, 100, 300, 1000, cases.widest(capture)):
        for n in COUNTS:
            instances = list(cases.problems(capture, rows, k, n))
            runs = cases.measure(method, instances, most_arcs, budget, REPEATS)
            if not runs or not all(run.solved for run in runs):
                break
            mean = 1e3 * float(np.mean([run.seconds for run in runs]))
            optima = np.array([otlp.optimal_acceptance(case) for case in instances])
            lost = np.mean(optima[: len(runs)] - [run.acceptance for run in runs])
            cells.append((float(optima.mean() - lost), f"({k}, {n})", mean))
            if mean > LIMITS[-1]:
                break
    best: Best = {}
    for limit in LIMITS:
        within = max((cell for cell in cells if cell[2] <= limit), default=NOTHING)
        better = [cell for cell in cells if cell[2] > limit and not cell[0] <= within[0]]
        missed = min(better, key=lambda cell: cell[2], default=NOTHING)
        best[str(limit)] = (*within, *missed[1:])
    return best


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(20)
@click.option("--budget", default=3.0, help="Seconds per method and size.")
@click.option("--most-arcs", default=6e5, help="Maximum number of arcs of a network or LP.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    captures = {"captured": builtin(), "synthetic": generate(rows, 4096)}
    flow = in_processor_time(cases.unmerged_flow())
    methods = [
        in_processor_time(cases.unmerged_lp(2.0)),
        flow,
        *(published_with_fallback(tau, flow) for tau in cases.TAUS),
        *(of_plan(type(solver).name, solver) for solver in (MaxFlow(), Slackness(), Martingale())),
    ]
    for tau in cases.TAUS:
        solver = GlobalResolution(tau, fallback=Slackness())
        methods.append(of_plan(f"global-resolution, tau {tau:g}", solver))
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
    """Draw the best acceptance of each method, one panel per capture; darker: longer limit."""
    figure = Figure(figsize=(7.6, 6.2))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, results) in zip(panels, content.items(), strict=True):
        places = np.arange(len(results))
        for limit, shift, colour in zip(
            LIMITS, (-0.27, 0.0, 0.27), (SKY, GREEN, BLUE), strict=True
        ):
            # NaN, stored as null, if no size is within the limit.
            best = [cells[str(limit)] for cells in results.values()]
            heights = 100.0 * np.array([cell[0] for cell in best], dtype=float)
            bars = axes.barh(places + shift, heights, 0.26, color=colour, label=f"{limit:g} ms")
            settings = [cell[1] for cell in best]
            axes.bar_label(bars, settings, fontsize=7, padding=2)
        axes.set_yticks(places, list(results), fontsize=9)
        axes.set(title=name, xlim=(0, 150), xticks=range(0, 101, 25))
    panels[0].invert_yaxis()
    figure.supxlabel("best acceptance within the limit, percent", fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def show(results: dict[str, Best], title: str) -> None:
    heads = [f"{limit:g} ms" for limit in LIMITS]
    heads += ["paper, 10 ms", "paper, 100 ms"]
    table = Table("method", *heads, title=f"Best acceptance within a mean time, {title}")
    for label, best in results.items():
        ours = [
            f"{100 * a:.2f}% at {setting}, {cases.shown(ms)} ms; {missed}: {cases.shown(over)}"
            for a, setting, ms, missed, over in best.values()
        ]
        paper = next((one for name, one in PAPER.items() if label.startswith(name)), None)
        theirs = [" / ".join(f"{x:g}%" for x in pair) for pair in (paper or {}).values()]
        table.add_row(label, *ours, *theirs)
    cases.console.print(table)


if __name__ == "__main__":
    main()
