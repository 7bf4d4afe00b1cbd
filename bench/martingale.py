"""Time of the exact solver for i.i.d. drafts, as a ratio to sorting.

    python bench/martingale.py
    python bench/martingale.py --sizes 1000,128256 --drafts 4 --seconds 5

A whole solve, with plan and certificate, is timed in turn with `numpy.argsort` of V random
doubles; the ratio is that of the least times.  Both run on one core and are timed by the processor
time of their thread, so that other programs disturb less.  All data are synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import click
import numpy as np
from measuring import report, seconds_of

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress
from otlp.data.synthetic import generate
from otlp.distribution import FloatArray, softmax
from otlp.solvers import Martingale

TUPLES = 100
"""Drafted tuples whose verified token and selection are timed, each once."""


def pairs(vocab_size: int) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    rng = np.random.default_rng(0)
    row = generate(1, vocab_size)
    target, draft = softmax(row.target_logits[0]), softmax(row.draft_logits[0])
    yield "like a language model", target, draft
    flat = np.ones(vocab_size)
    yield "Dirichlet(1)", rng.dirichlet(flat), rng.dirichlet(flat)


def measure(name: str, problem: otlp.Problem, budget: float) -> dict[str, Any]:
    """Times of one problem, the least of those of solves and sorts."""
    rng = np.random.default_rng(0)
    numbers = rng.random(problem.vocab_size)
    solver = Martingale()
    for _ in range(3):
        solution = solver.solve(problem)
    sorts: list[float] = []
    solves: list[float] = []
    end = perf_counter() + budget
    while perf_counter() < end or len(solves) < 5:
        sorts.append(seconds_of(lambda: np.argsort(numbers), thread_time))
        solves.append(seconds_of(lambda: solver.solve(problem), thread_time))
    plan: Any = solution.plan
    drafted = problem.drafts.sample(rng, TUPLES)
    plan.sample(drafted[0], rng)
    plan.selection(drafted[0])
    a_token = {
        "token us": lambda row: plan.sample(row, rng),
        "selection us": plan.selection,
    }
    return {
        "data (synthetic)": name,
        "V": problem.vocab_size,
        "n": problem.n,
        "argsort ms": 1e3 * min(sorts),
        "solve ms": 1e3 * min(solves),
        "ratio": min(solves) / min(sorts),
        "of medians": float(np.median(solves) / np.median(sorts)),
        "acceptance": solution.acceptance,
        "gap": solution.gap,
        "marginal error": solution.marginal_error,
        **{
            what: 1e6 * float(np.median([seconds_of(partial(ask, row)) for row in drafted]))
            for what, ask in a_token.items()
        },
    }


@click.command(help=__doc__.replace("\n    ", "\n\n    "))
@click.option(
    "--sizes",
    default="1000,4096,32000,128256,1000000",
    type=ListOf(click.IntRange(1000)),
    help="Vocabulary sizes, each at least 1000.",
)
@click.option(
    "--drafts", default="2,3,4,8,16,64", type=ListOf(click.IntRange(1)), help="Numbers of drafts."
)
@click.option("--seconds", default=1.0, help="Time to repeat each solve for.")
@json_option("Also write all numbers.")
def main(
    sizes: tuple[int, ...], drafts: tuple[int, ...], seconds: float, json_path: Path | None
) -> None:
    timings = []
    with progress("martingale", 2 * len(sizes) * len(drafts)) as step:
        for vocab_size in sizes:
            for name, target, draft in pairs(vocab_size):
                for n in drafts:
                    problem = otlp.Problem(target, otlp.IID(draft, n))
                    timings.append(measure(name, problem, seconds))
                    step(f"{name}, V = {vocab_size:,}, n = {n}")
    report("martingale: a whole solve, certificate included", timings, json_path)


if __name__ == "__main__":
    main()
