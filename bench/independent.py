"""Times of the optimum for independent drafts, relative to sorting.

    OMP_NUM_THREADS=1 python bench/independent.py
    python bench/independent.py --sizes 8192,131072 --drafts 2,3,4,8

Synthetic targets are a softmax of Gaussian logits (standard deviation 3); each draft adds Gaussian
noise to the logits.  Captured rows have one draft model and a different temperature for each draft.
The table shows the processor time of `random-weights` with its certificate, the minimum of five
solves, in milliseconds and in times of `numpy.argsort` of V random doubles; for V up to 8,192 also
the time of `orderings`, in times of `random-weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import click
import numpy as np
from measuring import repeated, report

import otlp
from otlp import captures
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress

NOISES = 0.1, 0.5, 1.0, 2.0, 4.0
ROWS = 0, 40, 80, 120
MOST_TOKENS = 8_192
"""Largest vocabulary on which `orderings` is timed."""


def synthetic(noise: float, size: int, n: int) -> otlp.Problem:
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal(size)
    drafts = [otlp.softmax(logits + noise * rng.standard_normal(size)) for _ in range(n)]
    return otlp.Problem(otlp.softmax(logits), otlp.Independent(drafts))


def captured(row: int, n: int) -> otlp.Problem:
    capture = captures.builtin()
    target, _ = capture.distributions(row=row)
    drafts = [
        capture.distributions(row=row, temperature=temperature)[1]
        for temperature in np.geomspace(0.6, 1.5, n)
    ]
    return otlp.Problem(target, otlp.Independent(drafts))


def problems(sizes: tuple[int, ...], drafts: tuple[int, ...]) -> Iterator[tuple[str, otlp.Problem]]:
    for n in drafts:
        for size in sizes:
            for noise in NOISES:
                yield f"noise {noise:g}", synthetic(noise, size, n)
        for row in ROWS:
            yield f"captured row {row}", captured(row, n)


def measure(name: str, problem: otlp.Problem) -> dict[str, Any]:
    """Return times of one problem, and the certified gap."""
    solver, size = otlp.solvers.RandomWeights(), problem.vocab_size
    numbers = np.random.default_rng(0).random(size)
    solution = solver.solve(problem)
    sort = repeated(lambda: np.argsort(numbers), 15, thread_time).min()
    time = repeated(lambda: solver.solve(problem), 5, thread_time).min()
    slower = ""
    if size <= MOST_TOKENS:
        orderings = otlp.solvers.Orderings()
        slower = f"{repeated(lambda: orderings.solve(problem), 1, thread_time).min() / time:.3g}"
    return {
        "data": name, "V": size, "n": problem.n, "1 - alpha*": f"{1.0 - solution.upper_bound:.2g}",
        "gap": f"{solution.gap:.1g}", "iterations": solution.details.get("iterations", "-"),
        "ms": 1e3 * time, "sorts": time / sort, "orderings": slower,
    }  # fmt: skip


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--sizes", type=ListOf(click.IntRange(min=2)), default="8192,131072,262144")
@click.option("--drafts", type=ListOf(click.IntRange(min=2)), default="2,3,4")
@json_option("Also write all rows to this file.")
def main(sizes: tuple[int, ...], drafts: tuple[int, ...], json_path: Path | None) -> None:
    cases = list(problems(sizes, drafts))
    found = []
    with progress("solving", len(cases)) as step:
        for name, problem in cases:
            found.append(measure(name, problem))
            step(f"{name}, V = {problem.vocab_size}, n = {problem.n}")
    report("Random weights, independent drafts", found, json_path)


if __name__ == "__main__":
    main()
