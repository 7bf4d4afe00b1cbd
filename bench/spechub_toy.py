"""SpecHub's toy Table 4, with exact acceptances instead of Monte Carlo.

    python bench/spechub_toy.py

Random pairs over 50 tokens with two drafts: p = softmax(u_p / T) and
q = softmax((lambda u_p + (1 - lambda) u_q) / T).  According to the paper u_p and u_q are uniform in
[0, 1]^50, but its numbers match standard normal u_p and u_q; both are shown.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np

import otlp
from otlp.cli.output import progress, show, table
from otlp.distribution import FloatArray
from otlp.studies.compare import OPTIMUM, measure_rules

VOCABULARY = 50

SCHEMES = ("iid", "without-replacement", "hub")
RULES = ("recursive-rejection", "hub")
METHODS = {
    "RRS": ("iid", "recursive-rejection"),
    "RRSw": ("without-replacement", "recursive-rejection"),
    "OTM": ("iid", OPTIMUM),
    "OTMw": ("without-replacement", OPTIMUM),
    "SpecHub": ("hub", "hub"),
}
"""Draft scheme and rule by the paper's name."""

# Table 4 of SpecHub, by temperature and lambda.
PAPER = {
    (0.1, 0.7): (0.6273, 0.7120, 0.6380, 0.7345, 0.7402),
    (0.1, 0.5): (0.3323, 0.4057, 0.3346, 0.4125, 0.4123),
    (0.25, 0.7): (0.7354, 0.7653, 0.7846, 0.8321, 0.8113),
    (0.25, 0.5): (0.4564, 0.4978, 0.4743, 0.5245, 0.4968),
    (0.5, 0.7): (0.8090, 0.8122, 0.9037, 0.9150, 0.8500),
    (0.5, 0.5): (0.6456, 0.6593, 0.7052, 0.7206, 0.6403),
}


LOGITS: dict[str, Callable[[np.random.Generator], FloatArray]] = {
    "normal": lambda rng: rng.standard_normal((2, VOCABULARY)),
    "uniform": lambda rng: rng.random((2, VOCABULARY)),
}


def pair(
    logits: FloatArray, temperature: float, similarity: float
) -> tuple[FloatArray, FloatArray]:
    u_p, u_q = logits
    mixed = similarity * u_p + (1.0 - similarity) * u_q
    return otlp.softmax(u_p, temperature), otlp.softmax(mixed, temperature)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pairs", default=100, help="Random pairs per row.")
@click.option("--seed", default=0, help="Random seed of the pairs.")
def main(pairs: int, seed: int) -> None:
    title = f"Mean acceptance over {pairs} random pairs, ± standard error; logits normal or uniform"
    made = table("T", "lambda", "", *METHODS, title=title)
    with progress("pairs", len(PAPER) * len(LOGITS)) as step:
        for (temperature, similarity), paper in PAPER.items():
            made.add_row(str(temperature), str(similarity), "paper", *map("{:.4f}".format, paper))
            for name, draw in LOGITS.items():
                rng = np.random.default_rng(seed)
                drawn = [pair(draw(rng), temperature, similarity) for _ in range(pairs)]
                found: dict[tuple[str, str], list[float]] = {}
                for one in drawn:
                    for scheme in SCHEMES:
                        for rule in measure_rules(one, scheme, 2, RULES):
                            found.setdefault((scheme, rule.rule), []).append(rule.acceptance)
                means = {
                    key: f"{np.mean(x):.4f} ±{np.std(x, ddof=1) / len(x) ** 0.5:.4f}"
                    for key, x in found.items()
                }
                ours = [means[method] for method in METHODS.values()]
                made.add_row("", "", name, *ours, end_section=name == "uniform")
                step(f"{name}, T = {temperature}, lambda = {similarity}")
    show(made)


if __name__ == "__main__":
    main()
