"""Time of the exact solver for i.i.d. drafts, as a ratio to sorting.

    python bench/martingale.py
    python bench/martingale.py --sizes 1000,128256 --drafts 4 --seconds 5

A whole solve, with plan and certificate, is timed in turn with `numpy.argsort` of V random
doubles; the ratio is that of the least times.  Both run on one core and are timed by the processor
time of their thread, so that other programs disturb less.  All data are synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import click
import numpy as np
from timing import seconds_of

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress, show, table, write_json
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
    """Seconds for one problem; `solve` and `argsort` are the least of `repetitions`."""
    rng = np.random.default_rng(0)
    numbers = rng.random(problem.vocab_size)
    solver = Martingale()
    for _ in range(3):
        solution = solver.solve(problem)
    sorts, solves = [], []
    end = perf_counter() + budget
    while perf_counter() < end or len(solves) < 5:
        sorts.append(seconds_of(lambda: np.argsort(numbers), thread_time))
        solves.append(seconds_of(lambda: solver.solve(problem), thread_time))
    plan = solution.plan
    assert plan is not None
    drafted = problem.drafts.sample(rng, TUPLES)
    plan.sample(drafted[0], rng)
    plan.selection(drafted[0])
    scores = [seconds_of(lambda row=row: plan.scores(row[:1], rng)) for row in drafted]
    tokens = [seconds_of(lambda row=row: plan.sample(row, rng)) for row in drafted]
    selections = [seconds_of(lambda row=row: plan.selection(row)) for row in drafted]
    return {
        "data": name,
        "vocab_size": problem.vocab_size,
        "n": problem.n,
        "repetitions": len(solves),
        "argsort": min(sorts),
        "solve": min(solves),
        "ratio_of_medians": float(np.median(solves) / np.median(sorts)),
        "acceptance": solution.acceptance,
        "gap": solution.gap,
        "marginal_error": solution.marginal_error,
        "score": float(np.median(scores)),
        "token": float(np.median(tokens)),
        "selection": float(np.median(selections)),
    }


CELLS = (
    *("{data}", "{vocab_size:,}", "{n}", "{argsort:.3g}", "{solve:.3g}", "{ratio:.2f}"),
    *("{ratio_of_medians:.2f}", "{acceptance:.6f}", "{gap:.0e}", "{marginal_error:.0e}"),
    *("{score:.1f}", "{token:.1f}", "{selection:.0f}"),
)
"""A row of the table: milliseconds of a solve, microseconds of a token."""


def report(timings: list[dict[str, Any]]) -> None:
    made = table(
        *("data (synthetic)", "V", "n", "argsort ms", "solve ms", "ratio", "of medians"),
        *("acceptance", "gap", "marginal error", "score us", "token us", "selection us"),
        title="martingale on synthetic data: a whole solve, certificate included",
    )
    fewest = timings[0]["n"]
    for row in timings:
        if row["n"] == fewest:
            made.add_section()
        shown = {
            **row,
            "ratio": row["solve"] / row["argsort"],
            **{name: 1e3 * row[name] for name in ("argsort", "solve")},
            **{name: 1e6 * row[name] for name in ("score", "token", "selection")},
        }
        made.add_row(*(cell.format(**shown) for cell in CELLS))
    show(made)


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
    if json_path:
        write_json(json_path, timings)
    report(timings)


if __name__ == "__main__":
    main()
