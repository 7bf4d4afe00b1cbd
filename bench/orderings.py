"""Times of the optimum for drafts without replacement.

    python bench/orderings.py

Times of random ranks for drafts without replacement, by families of rows: V = 8,192, or rows of the
built-in capture, in which 1,500 tokens can be drafted.  Times are processor milliseconds including
the certificate, the minimum of three solves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import click
import numpy as np
from measuring import repeated, report

import otlp
from otlp import captures
from otlp.cli.output import progress
from otlp.distribution import FloatArray
from otlp.solvers.random_ranks import RandomRanks

Pair = tuple[FloatArray, FloatArray]
SIZE = 8_192


def softmaxes(scale: float, correlation: float, rng: np.random.Generator) -> Pair:
    """Return distributions of two correlated Gaussian logits."""
    one, two = scale * rng.standard_normal((2, SIZE))
    mixed = correlation * one + np.sqrt(1.0 - correlation**2) * two
    return otlp.softmax(one), otlp.softmax(mixed)


def zipf(rng: np.random.Generator) -> FloatArray:
    """Return a distribution in which token i has a probability of about 1 / i."""
    return otlp.softmax(rng.standard_normal(SIZE) - np.log(np.arange(1, SIZE + 1)))


def near(noise: float, rng: np.random.Generator) -> Pair:
    """Return a Zipf target, and a draft with noise added to the target's logits."""
    target = zipf(rng)
    return target, otlp.softmax(np.log(target) + noise * rng.standard_normal(SIZE))


def peaked(top: float, rng: np.random.Generator) -> Pair:
    """Return a draft in which three tokens have about `top` of the mass."""
    target, draft = rng.dirichlet(np.full(SIZE, 0.5), 2)
    target[:3] += [0.9, 0.1, 1.0]
    draft[:3] += np.array([0.5, 0.35, 0.15]) * top / (1.0 - top)
    return target / target.sum(), draft / draft.sum()


def captured(temperature: float, row: int) -> Pair:
    return captures.builtin().distributions(row=row, temperature=temperature)


def dirichlet(concentration: float, rng: np.random.Generator) -> Pair:
    p, q = rng.dirichlet(np.full(SIZE, concentration), 2)
    return p, q


def seeded(make: Callable[[np.random.Generator], Pair]) -> Callable[[int], Pair]:
    return lambda row: make(np.random.default_rng(row))


FAMILIES: dict[str, Callable[[int], Pair]] = {
    "Zipf": seeded(lambda rng: (zipf(rng), zipf(rng))),
    **{f"Dirichlet({a:g})": seeded(partial(dirichlet, a)) for a in (0.05, 0.3, 1.0)},
    "Gaussian logits, 1, .9": seeded(lambda rng: softmaxes(1.0, 0.9, rng)),
    "Gaussian logits, 3, .9": seeded(lambda rng: softmaxes(3.0, 0.9, rng)),
    "Gaussian logits, 5, .7": seeded(lambda rng: softmaxes(5.0, 0.7, rng)),
    "Zipf, draft near the target (.5)": seeded(lambda rng: near(0.5, rng)),
    "Zipf, draft near the target (.1)": seeded(lambda rng: near(0.1, rng)),
    "Zipf, p = q": seeded(lambda rng: near(0.0, rng)),
    "three tokens with .6": seeded(lambda rng: peaked(0.6, rng)),
    "three tokens with .95": seeded(lambda rng: peaked(0.95, rng)),
    **{f"captured, T = {t:g}": partial(captured, t) for t in (0.6, 1.0, 2.0)},
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--seeds", default=7, help="Number of problems per row of the table.")
def main(seeds: int) -> None:
    found = []
    with progress("solving", 3 * len(FAMILIES)) as step:
        for name in FAMILIES:
            for n in (2, 3, 4):
                found.append(family(name, n, 24 if "captured" in name else seeds))
                step(f"{name}, n = {n}")
    report("Random ranks, without replacement", found)


def family(name: str, n: int, count: int) -> dict[str, Any]:
    """Time random ranks on the rows of one family; captured rows are spread over the capture."""
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
