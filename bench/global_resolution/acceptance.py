"""Figures 1 to 4: optimal acceptance over n and k.

    python bench/global_resolution/acceptance.py

Figure 1 is for i.i.d. drafts.  Figures 2 and 3 compare i.i.d. with greedy drafts, the top n - 1
tokens and one more (Hu et al. 2025).  Figure 4 is for five temperatures of the target, with the
draft at 1.  No plan is computed: subset selection yields the optimum (Theorem 3.1).
"""

from __future__ import annotations

from typing import Any

import cases
import click
from matplotlib.figure import Figure

from otlp.cli.options import jobs_option
from otlp.data.captures import builtin
from otlp.data.synthetic import generate
from otlp.studies.sweep import Grid

COUNTS = range(1, 11)
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
ROWS = {"figure_1": 160, "figures_2_3": 80, "figure_4": 20}


def gains(content: dict[str, Any]) -> dict[str, cases.Curves]:
    """Return the gains of i.i.d. over greedy drafts, in percentage points."""
    return {
        name: {k: [100 * (iid - greedy) for iid, greedy in pairs] for k, pairs in curves.items()}
        for name, curves in content["iid_and_greedy"].items()
    }


def draw(name: str, content: dict[str, Any]) -> Figure:
    """Draw one of the figures from stored results."""
    if name == "figures_2_3":
        label = "i.i.d. minus greedy acceptance, points"
        figure = cases.draw_over_n(gains(content), COUNTS[1:], label)
        for axes in figure.axes:
            axes.axhline(0.0, color="black", linewidth=0.8)
        return figure
    curves, size = content["acceptance"], (9.0, 3.8)
    if name == "figure_4":
        curves, size = {f"temperature {t}": by_k for t, by_k in curves.items()}, (11.0, 2.8)
    return cases.draw_over_n(curves, COUNTS, "optimal acceptance", size)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--rows", type=click.IntRange(1), show_default=str(tuple(ROWS.values())))
@jobs_option
def main(rows: int | None, jobs: int | None) -> None:
    many = {name: rows or default for name, default in ROWS.items()}
    first: dict[str, cases.Curves] = {}
    second: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for capture in (builtin(), generate(16, 32_000)):
        size, count = cases.widest(capture), many["figure_1"]
        grid = Grid(COUNTS, top_k=cases.top_k(capture, (10, 100, 1000, 10_000, size)), rules=())
        found = cases.mean_optima(capture, count, grid, "Figure 1", jobs)
        curves = {str(k): values for (*_, k), values in found.items()}
        first[cases.describe(capture, count)] = curves

        ks, count = [10, 100, 1000, min(10_000, size)], many["figures_2_3"]
        grid = Grid(COUNTS[1:], top_k=cases.top_k(capture, ks), schemes=("iid", "greedy"), rules=())
        found = cases.mean_optima(capture, count, grid, "Figures 2 and 3", jobs)
        pairs = {k: zip(found["iid", 1.0, k], found["greedy", 1.0, k], strict=True) for k in ks}
        second[cases.describe(capture, count)] = {str(k): list(both) for k, both in pairs.items()}

    capture, count = builtin(), many["figure_4"]
    top_k = cases.top_k(capture, (10, 100, 1000, cases.widest(capture)))
    grid = Grid(COUNTS, TEMPERATURES, top_k, rules=(), draft_temperature=1.0)
    found = cases.mean_optima(capture, count, grid, "Figure 4", jobs)
    fourth: dict[str, cases.Curves] = {str(t): {} for t in TEMPERATURES}
    for (_, temperature, k), values in found.items():
        fourth[str(temperature)][str(k)] = values

    contents: dict[str, dict[str, Any]] = {
        "figure_1": {"acceptance": first},
        "figures_2_3": {"iid_and_greedy": second},
        "figure_4": {"acceptance": fourth},
    }
    percent = "{:.2%}".format
    cases.print_over_n(first, COUNTS, "Optimal acceptance", percent)
    differences = gains(contents["figures_2_3"])
    cases.print_over_n(differences, COUNTS[1:], "i.i.d. minus greedy, points", "{:+.2f}".format)
    cases.print_over_n(fourth, COUNTS, "Optimal acceptance by temperature", percent)
    for name, content in contents.items():
        cases.write(name, {"rows": many[name], **content}, draw(name, content))


if __name__ == "__main__":
    main()
