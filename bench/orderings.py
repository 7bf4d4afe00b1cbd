"""How long the optimum takes where drafts are not i.i.d.

    python bench/orderings.py

First the mixture of orderings, as a ratio to one numpy.argsort of V floats.  Its distributions are
synthetic: "language-like" ones have a target like a language model's (from otlp.data.synthetic) and
drafts with noise of different strengths on its logits; "Dirichlet" ones are unrelated
Dirichlet(0.3) draws.  Milliseconds are of the search alone (`Timings.solve`), the median over
seeds; the sort is measured between the searches, in the same process.

Then random ranks, for drafts without replacement, by families of rows: V = 8,192, or the shipped
capture's 4,096.  Milliseconds of the processor, certificate included, the least of three solves.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import click
import numpy as np
from measuring import repeated, report, seconds_of

import otlp
from otlp import captures
from otlp.cli.output import progress
from otlp.data.synthetic import generate
from otlp.distribution import FloatArray
from otlp.solvers.orderings import Orderings
from otlp.solvers.random_ranks import RandomRanks
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


Pair = tuple[FloatArray, FloatArray]
SIZE = 8_192


def softmaxes(scale: float, correlation: float, rng: np.random.Generator) -> Pair:
    """Logits of two correlated Gaussians."""
    one, two = scale * rng.standard_normal((2, SIZE))
    mixed = correlation * one + np.sqrt(1.0 - correlation**2) * two
    return otlp.softmax(one), otlp.softmax(mixed)


def zipf(rng: np.random.Generator) -> FloatArray:
    """Token i about as likely as 1 / i."""
    return otlp.softmax(rng.standard_normal(SIZE) - np.log(np.arange(1, SIZE + 1)))


def near(noise: float, rng: np.random.Generator) -> Pair:
    """A target like Zipf's, and a draft with noise on its logits."""
    target = zipf(rng)
    return target, otlp.softmax(np.log(target) + noise * rng.standard_normal(SIZE))


def peaked(top: float, rng: np.random.Generator) -> Pair:
    """A draft of whose mass three tokens have about the part `top`."""
    target, draft = rng.dirichlet(np.full(SIZE, 0.5), 2)
    target[:3] += [0.9, 0.1, 1.0]
    draft[:3] += np.array([0.5, 0.35, 0.15]) * top / (1.0 - top)
    return target / target.sum(), draft / draft.sum()


def captured(temperature: float, row: int) -> Pair:
    return captures.builtin().distributions(row=row, temperature=temperature)


def seeded(make: Callable[[np.random.Generator], Pair]) -> Callable[[int], Pair]:
    return lambda row: make(np.random.default_rng(row))


FAMILIES: dict[str, Callable[[int], Pair]] = {
    "Zipf": seeded(lambda rng: (zipf(rng), zipf(rng))),
    **{
        f"Dirichlet({a:g})": seeded(lambda rng, a=a: tuple(rng.dirichlet(np.full(SIZE, a), 2)))
        for a in (0.05, 0.3, 1.0)
    },
    "Gaussian logits, 1, .9": seeded(lambda rng: softmaxes(1.0, 0.9, rng)),
    "Gaussian logits, 3, .9": seeded(lambda rng: softmaxes(3.0, 0.9, rng)),
    "Gaussian logits, 5, .7": seeded(lambda rng: softmaxes(5.0, 0.7, rng)),
    "Zipf, draft near the target (.5)": seeded(lambda rng: near(0.5, rng)),
    "Zipf, draft near the target (.1)": seeded(lambda rng: near(0.1, rng)),
    "Zipf, p = q": seeded(lambda rng: near(0.0, rng)),
    "three tokens with .6": seeded(lambda rng: peaked(0.6, rng)),
    "three tokens with .95": seeded(lambda rng: peaked(0.95, rng)),
    **{f"captured, T = {t:g}": lambda row, t=t: captured(t, row) for t in (0.6, 1.0, 2.0)},
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--seeds", default=7, help="Problems a row.")
def main(seeds: int) -> None:
    with progress("solving", len(CELLS) + 3 * len(FAMILIES)) as step:
        mixtures, ranks = [], []
        for cell in CELLS:
            mixtures.append(row(*cell, seeds))
            step(", ".join(map(str, cell)))
        for name in FAMILIES:
            for n in (2, 3, 4):
                ranks.append(family(name, n, 24 if "captured" in name else seeds))
                step(f"{name}, n = {n}")
    report("Orderings, on synthetic distributions", mixtures)
    report("Random ranks, without replacement", ranks)


def row(kind: str, scheme: str, size: int, gap: float, seeds: int) -> dict[str, Any]:
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
    return {
        "synthetic": kind, "drafts": scheme, "V": size, "gap": gap,
        "ms": float(np.median(milliseconds)), "worst ms": max(milliseconds),
        "sorts": float(np.median(np.divide(milliseconds, sorts))),
        "orderings": float(np.median(orderings)), "worst gap": max(gaps),
        "alpha*": float(np.median(optima)),
    }  # fmt: skip


def family(name: str, n: int, count: int) -> dict[str, Any]:
    """Random ranks on the rows of one family; captured ones are spread over the capture."""
    milliseconds, fell, optima = [], 0, []
    for seed in range(count):
        target, draft = FAMILIES[name](seed * 160 // count if "captured" in name else seed)

        def solve(target: FloatArray = target, draft: FloatArray = draft) -> otlp.Solution:
            return RandomRanks().solve(otlp.Problem(target, otlp.WithoutReplacement(draft, n)))

        solution = solve()
        milliseconds.append(1e3 * repeated(solve, 3, process_time).min())
        fell += "orderings" in solution.details
        optima.append(solution.upper_bound)
    return {
        "ranks": name, "n": n, "rows": count, "ms": float(np.median(milliseconds)),
        "worst ms": max(milliseconds), "to orderings": fell, "alpha*": float(np.median(optima)),
    }  # fmt: skip


if __name__ == "__main__":
    main()
