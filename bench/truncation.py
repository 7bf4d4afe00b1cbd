"""Mean bound on the loss of the optimum for rows that store only the most likely tokens.

    python bench/truncation.py

The share of rows without a loss is in brackets.  All rows are synthetic.
"""

from __future__ import annotations

import click
import numpy as np

from otlp import captures, synthetic
from otlp.cli.options import ListOf, vocab_size_option
from otlp.cli.output import show, table

CUTS = ((10, 1.0), (20, 1.0), (10, 0.6), (10, 1.4))
"""Top-k of the draft, and the temperature."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--rows", default=500, type=click.IntRange(1), help="Number of synthetic rows.")
@vocab_size_option(32_000)
@click.option("--kept", default="20,50,100", type=ListOf(click.IntRange(20)), help="Stored tokens.")
def main(rows: int, vocab_size: int, kept: tuple[int, ...]) -> None:
    capture = synthetic.generate(rows, vocab_size)
    made = table("kept", *(f"top-k {k}, T = {temperature}" for k, temperature in CUTS))
    for count in kept:
        top, cells = captures.keep_top(capture, count), []
        for k, t in CUTS:
            loss = np.array([top.truncation(row, t, top_k=k) for row in range(rows)])
            cells.append(f"{loss.mean():.2g} ({np.mean(loss == 0.0):.0%})")
        made.add_row(str(count), *cells)
    show(made)


if __name__ == "__main__":
    main()
