"""Figures 2 and 3: i.i.d. against greedy drafts.

    python bench/global_resolution/greedy.py

Greedy drafts hold the top n - 1 tokens and one more (Hu et al. 2025); their optimum has a closed
form, p(top) + sum over the others of min(p, q without the top).
"""

from __future__ import annotations

import cases
import click
import numpy as np

from otlp.cli.options import rows_option
from otlp.cli.output import progress
from otlp.data.captures import Capture, builtin
from otlp.data.synthetic import generate
from otlp.studies.compare import OPTIMUM, compare, summarise

COUNTS = range(2, 11)


def advantages(capture: Capture, rows: list[int], k: int) -> list[tuple[float, float]]:
    """Mean optimum of i.i.d. and of greedy drafts for each n."""
    pairs = [capture.distributions(row, top_k=k) for row in rows]
    optima = {
        (found.scheme, found.n): found.acceptance
        for found in summarise(compare(pairs, COUNTS, ("iid", "greedy"), rules=()))
        if found.rule == OPTIMUM
    }
    return [(optima["iid", n], optima["greedy", n]) for n in COUNTS]


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(80)
def main(rows: int) -> None:
    captures = [builtin(), generate(16, 32_000)]
    results: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with progress("Figures 2 and 3", 8) as step:
        for capture in captures:
            chosen = cases.spread(capture, rows)
            ks = [10, 100, 1000, min(10_000, capture.vocab_size)]
            results[cases.describe(capture)] = {
                str(k): advantages(capture, chosen, k) for k in ks if not step(f"k = {k}")
            }
    gains = {
        name: {k: [100 * (iid - greedy) for iid, greedy in pairs] for k, pairs in curves.items()}
        for name, curves in results.items()
    }
    figure = cases.over_n(gains, COUNTS, "i.i.d. minus greedy, points", "{:+.2f}".format)
    for axes in figure.axes:
        axes.axhline(0.0, color="black", linewidth=0.8)
    figure.axes[0].set_ylabel("i.i.d. minus greedy acceptance, points")
    cases.write("figures_2_3", {"iid_and_greedy": results, "rows": rows}, figure)
    report(gains)


def report(gains: dict[str, dict[str, list[float]]]) -> None:
    cases.say(
        beside="(i.i.d. loses at k = 10, wins at every k >= 100, by nearly 2 points for n >= 4)"
    )
    for name, curves in gains.items():
        wide = [curve for k, curve in curves.items() if int(k) >= 100]
        small, large = curves["10"], [gain for curve in wide for gain in curve]
        late = np.mean([gain for curve in wide for gain in curve[2:]])
        loses = "loses" if max(small) < 0 else "does not always lose"
        wins = "wins" if min(large) > 0 else "does not always win"
        cases.say(
            f"{name}: i.i.d. {loses} at k = 10 ({min(small):+.2f} to {max(small):+.2f}), {wins} "
            f"at k >= 100 ({min(large):+.2f} to {max(large):+.2f}; {late:+.2f} for n >= 4)."
        )
    cases.say(
        "Where it differs: greedy drafts win where the draft's top tokens carry the target's mass, "
        "so the sign depends on how sure the models are."
    )


if __name__ == "__main__":
    main()
