"""How long the mixture of orderings takes, as a ratio to one numpy.argsort of V floats.

    python bench/orderings.py

All distributions are synthetic: "language-like" ones have a target like a language model's (from
otlp.data.synthetic) and drafts with noise of different strengths on its logits; "Dirichlet" ones
are unrelated Dirichlet(0.3) draws.  Milliseconds are of the search alone (`Timings.solve`), the
median over seeds; the sort is measured between the searches, in the same process.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
from timing import seconds_of

import otlp
from otlp.cli.output import progress, show, table
from otlp.data.synthetic import generate
from otlp.distribution import FloatArray
from otlp.solvers.orderings import Orderings
from otlp.studies.attempt import settled

Instance = tuple[FloatArray, list[FloatArray]]


def language_like(size: int, seed: int) -> Instance:
    """A target and four drafts, from logits like a language model's."""
    capture = generate(rows=1, vocab_size=size, seed=seed)
    target = np.asarray(capture.target_logits[0], dtype=np.float64)
    spread = float((np.asarray(capture.draft_logits[0], dtype=np.float64) - target).std())
    rng = np.random.default_rng(seed)
    drafts = [
        otlp.softmax(target + strength * spread * rng.standard_normal(size))
        for strength in (0.7, 0.9, 1.1, 1.3)
    ]
    return otlp.softmax(target), drafts


def dirichlet(size: int, seed: int) -> Instance:
    """A target and four drafts that have nothing to do with each other."""
    rows = np.random.default_rng(seed).dirichlet(np.full(size, 0.3), size=5)
    return rows[0], list(rows[1:])


SCHEMES: dict[str, Callable[[list[FloatArray]], otlp.DraftScheme]] = {
    "four different drafts": otlp.Independent,
    "without replacement, n = 3": lambda drafts: otlp.WithoutReplacement(drafts[0], 3),
}

CELLS = [
    (kind, scheme, size, gap)
    for kind in ("language-like", "Dirichlet")
    for scheme in SCHEMES
    for size, gap in ((1_000, 1e-3), (1_000, 1e-6), (128_256, 1e-3))
]


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--seeds", default=7, help="Problems a row.")
def main(seeds: int) -> None:
    heads = ("drafts", "V", "gap", "ms", "worst ms", "sorts", "orderings", "worst gap", "alpha*")
    made = table("synthetic", *heads, title="Orderings, on synthetic distributions")
    with progress("solving", len(CELLS)) as step:
        for cell in CELLS:
            made.add_row(*row(*cell, seeds))
            step(", ".join(map(str, cell)))
    show(made)


def row(kind: str, scheme: str, size: int, gap: float, seeds: int) -> list[str]:
    make = language_like if kind == "language-like" else dirichlet
    milliseconds, sorts, orderings, gaps, optima = [], [], [], [], []
    for seed in range(seeds):
        target, drafts = make(size, seed)
        problem = otlp.Problem(target, SCHEMES[scheme](drafts))
        Orderings(gap=gap, max_iterations=2).solve(problem)  # fill caches
        solution = settled(lambda problem=problem: Orderings(gap=gap).solve(problem))
        milliseconds.append(1e3 * solution.timings.solve)
        sorts.append(1e3 * min(seconds_of((target / drafts[0]).argsort) for _ in range(5)))
        orderings.append(solution.details["orderings"])
        gaps.append(solution.gap)
        optima.append(solution.upper_bound)
    return [
        kind, scheme, f"{size:,}", f"{gap:.0e}", f"{np.median(milliseconds):.2f}",
        f"{max(milliseconds):.1f}", f"{np.median(np.divide(milliseconds, sorts)):.0f}",
        f"{np.median(orderings):.0f}", f"{max(gaps):.1e}", f"{np.median(optima):.4f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
