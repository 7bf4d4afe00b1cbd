"""Tables 1 and 3: times and success rates over (k, n).

    python bench/global_resolution/times.py

Each method is run as the paper ran it (all tuples apart, its limits, L-BFGS-B, one system a
token) and as this library runs it (tuples merged by set, lumps, Newton steps, the whole plan).
"""

from __future__ import annotations

import math
from typing import Any

import cases
import click
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from otlp.cli.options import rows_option
from otlp.cli.output import progress
from otlp.data.captures import Capture
from otlp.reductions.complementary_slackness import split
from otlp.reductions.truncation import inner_truncation
from otlp.solvers import GlobalResolution
from otlp.solvers.global_resolution.global_resolution import PAPER_LIMITS

SIZES = [(10, 2), (10, 3), (10, 4), (10, 5), (100, 2), (100, 3), (1000, 2)]

# Milliseconds a token: Llama-3 (Table 1) and Gemma-2 (Table 3); lower bounds where the paper says
# so; success rates in percent for global resolution.
PAPER: dict[str, list[str]] = {
    "LP": ["4.07 / 7.85", "30.1 / 59.4", "4000+", "400000+", "4000+", "400000+", "OOM"],
    "max-flow": [
        *("2.45 / 3.18", "3.80 / 5.05", "74.2 / 95.7", "10000+"),
        *("72.3 / 95.1", "200000+", "400000+"),
    ],
    "optimized max-flow": [
        *("2.51 / 3.26", "3.88 / 5.10", "74.4 / 94.2", "10000+"),
        *("63.0 / 82.9", "200000+", "400000+"),
    ],
    "global resolution, tau 0.001": [
        *("5.27 / 7.46", "17.4 / 24.6", "40.3 / 57.2", "70.8 / 98.1"),
        *("23.9 / 49.6", "30.5 / 108", "34.9 / 60.1"),
    ],
    "global resolution, tau 0.0001": [
        *("7.62 / 10.6", "24.0 / 34.0", "54.8 / 77.4", "94.8 / 131"),
        *("25.5 / 43.5", "38.4 / 32.8", "47.5 / 141"),
    ],
}
SUCCESS: dict[float, list[tuple[float, float]]] = {
    1e-3: [(98, 98.9), (98, 98.5), (97, 98.3), (96, 97.8), (38, 36.6), (23, 19.5), (31, 27.5)],
    1e-4: [(93, 92.8), (87, 88.1), (86, 86.2), (85, 85.4), (23, 18.6), (14, 8.2), (15, 8.0)],
}

Times = dict[str, list[list[cases.Run]]]


def cells(rows: int, budget: float, most_arcs: float) -> tuple[Times, list[dict[str, float]]]:
    capture = cases.captured()
    methods = [*cases.paper_methods(time_limit=budget), *plans_of_the_paper(), *cases.own_methods()]
    cases.warm(methods, capture)
    results: Times = {method.label: [] for method in methods}
    rates = []
    made_up = cases.synthetic(100, 4096)
    with progress("Tables 1 and 3", len(SIZES) * len(methods)) as step:
        for k, n in SIZES:
            instances = list(cases.problems(capture, cases.spread(capture, rows), k, n))
            rates.append(success_rates(made_up, k, n))
            for method in methods:
                step(f"({k}, {n}) {method.label}")
                runs = (
                    []
                    if hopeless(results[method.label], k, n, budget)
                    else cases.measure(method, instances, most_arcs, budget)
                )
                results[method.label].append(runs)
    return results, rates


def plans_of_the_paper() -> list[cases.Method]:
    """Both systems for every tuple, as the solver `global-resolution` with plan="published"."""
    return [
        cases.with_solver(f"whole published plan, tau {tau:g}", GlobalResolution.published(tau))
        for tau in cases.TAUS
    ]


def hopeless(done: list[list[cases.Run]], k: int, n: int, budget: float) -> bool:
    """Whether a smaller size with the same k, or the same n, already used up its seconds."""
    smaller = [runs for (a, b), runs in zip(SIZES, done, strict=False) if a <= k and b <= n]
    return any(not runs or runs[-1].seconds > budget / 4 for runs in smaller)


def success_rates(made_up: Capture, k: int, n: int) -> dict[str, float]:
    """Success of Algorithm 1 for a drafted tuple, over all rows, at tau 1e-3, and why it fails."""
    method = cases.conditional_of("", GlobalResolution.published(1e-3))
    capture = cases.captured()
    instances = list(cases.problems(capture, range(len(capture)), k, n))
    runs = [method.run(case) for case in instances]
    others = [method.run(case) for case in cases.problems(made_up, range(len(made_up)), k, n)]
    inner = np.array(
        [
            inner_truncation(case.drafts.draft, n, split(case).subset, 1e-3)[0].size
            for case in instances
        ]
    )
    return {
        "captured": cases.success(runs),
        "synthetic": cases.success(others),
        "for_size": sum(run.status == "TRUNCATION_LIMIT" for run in runs) / len(runs),
        "inner_50": float(np.median(inner)),
        "inner_within": float((inner <= PAPER_LIMITS[n]).mean()),
    }


def print_table(results: Times) -> None:
    table = Table(title="Median ms a token (success rate; runs if not all rows)")
    table.add_column("method", min_width=22)
    for k, n in SIZES:
        table.add_column(f"({k}, {n})", justify="right")
    most = max(len(runs) for row in results.values() for runs in row)
    for label, row in results.items():
        table.add_row(label, *(_cell(runs, most) for runs in row))
    table.add_section()
    for label, texts in PAPER.items():
        rates = SUCCESS.get(float(label.rsplit(" ", 1)[1])) if "tau" in label else None
        extra = [f" ({a:g}%)" for a, _ in rates] if rates else [""] * len(texts)
        table.add_row(f"paper: {label}", *(t + e for t, e in zip(texts, extra, strict=True)))
    cases.console.print(table)


def _cell(runs: list[cases.Run], most: int) -> str:
    if not runs:
        return "-"
    rate = cases.success(runs)
    text = cases.shown(cases.milliseconds(runs))
    if rate < 1.0:
        text += f" ({100 * rate:.0f}%)"
    return text + (f" n={len(runs)}" if len(runs) < most else "")


def report(results: Times, rates: list[dict[str, float]]) -> None:
    labels = list(results)
    resolution, own = "global resolution, tau 0.001", "global-resolution, tau 0.001"
    cases.say(beside="(far larger models, a closer draft, another machine)")
    flows = [label for label in labels if label.startswith("max-flow, all tuples")]
    for other, first in ((labels[0], 3), *((flow, 4) for flow in flows)):
        for index, (k, n) in enumerate(SIZES):
            if k == 10 and n < first:
                continue
            ours, theirs = (
                cases.milliseconds(results[label][index]) for label in (resolution, other)
            )
            where = f"({k}, {n}): global resolution as published, {cases.shown(ours)} ms"
            if math.isnan(theirs):
                cases.say(f"{where}; {other}: not solved within its limits here.")
            else:
                faster = "faster, as in the paper" if theirs > ours else "SLOWER, unlike the paper"
                cases.say(f"{where}, against {cases.shown(theirs)} ms for {other}: {faster}.")
    for size, paper, rate in zip(SIZES, SUCCESS[1e-3], rates, strict=True):
        cases.say(*_about_success(size, paper, rate))
    if all(rate["captured"] + rate["for_size"] > 0.999 for rate in rates):
        cases.say(
            "Every failure is for |T|, none for the iterations.  Where success is below the "
            "paper's, these small models are less sure than the paper's, and T needs more tokens."
        )
    for index, (k, n) in enumerate(SIZES):
        ms, rate = cases.milliseconds(results[own][index]), cases.success(results[own][index])
        exact = ", ".join(
            f"{label} {cases.shown(cases.milliseconds(results[label][index]))}"
            for label in ("max-flow", "slackness", "martingale")
        )
        cases.say(
            f"({k}, {n}): the library's global resolution, whole lossless plan: "
            f"{cases.shown(ms)} ms, success {100 * rate:.0f}%; the exact solvers, ms: {exact}."
        )
    cases.say(*(_about_wins(results, label, resolution) for label in ("max-flow", "martingale")))
    cases.say("The paper's max-flow is slow because it lists every tuple; merged by set it is not.")


def _about_success(
    size: tuple[int, int], paper: tuple[float, float], rate: dict[str, float]
) -> list[str]:
    found = 100 * rate["captured"]
    verdict = (
        "at least the paper's"
        if found >= max(paper)
        else "as the lower of the paper's"
        if found >= min(paper)
        else "below the paper's"
    )
    limit = PAPER_LIMITS[size[1]]
    return [
        f"{size}: success {found:.0f}% at tau 1e-3 and the paper's limits, {verdict} "
        f"{paper[0]:g}% / {paper[1]:g}%; {100 * rate['synthetic']:.0f}% on synthetic rows.",
        f"{size}: |T| of the inner system: median {rate['inner_50']:.0f}, at most {limit} in "
        f"{100 * rate['inner_within']:.0f}% of rows; {100 * rate['for_size']:.0f}% fail for |T|.",
    ]


def _about_wins(results: Times, label: str, other: str) -> str:
    pairs = zip(SIZES, results[label], results[other], strict=True)
    won = [
        str(size)
        for size, ours, theirs in pairs
        if cases.milliseconds(ours) < cases.milliseconds(theirs)
    ]
    where = ", ".join(won) or "no size"
    return f"{label}, which is exact, is faster than the published global resolution at {where}."


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(40)
@click.option("--budget", default=6.0, help="Seconds for a method at a size.")
@click.option("--most-arcs", default=2e6, help="Largest network or LP to try.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    results, rates = cells(rows, budget, most_arcs)
    cases.console.print(cases.describe(cases.captured()))
    print_table(results)
    report(results, rates)
    content = {
        label: [
            {
                "k": k,
                "n": n,
                "runs": len(runs),
                "median_ms": cases.milliseconds(runs),
                "success": cases.success(runs),
            }
            for (k, n), runs in zip(SIZES, row, strict=True)
        ]
        for label, row in results.items()
    }
    stored = {"rows": rows, "methods": content, "success_rates": rates, "paper": PAPER}
    cases.write("tables_1_3", stored, draw(content))


def draw(methods: dict[str, list[dict[str, Any]]]) -> Figure:
    """Median milliseconds over (k, n): dashed as the paper ran it, solid this library."""
    figure = Figure(figsize=(9.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, (label, cells) in enumerate(methods.items()):
        if label.startswith("whole published"):
            continue
        as_published = "all tuples" in label or label.startswith("global resolution,")
        axes.plot(
            range(len(SIZES)),
            [cell["median_ms"] for cell in cells],
            "--" if as_published else "-",
            color=f"C{index % 10}",
            marker="o" if as_published else "s",
            fillstyle="none" if as_published else "full",
            label=label,
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
    axes.set(xlabel="(k, n)", ylabel="median ms a token, of the solved rows")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize=8, title="dashed: as in the paper")
    return figure


if __name__ == "__main__":
    main()
