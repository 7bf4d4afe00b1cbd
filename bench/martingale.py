"""Times of the exact solver for i.i.d. drafts and of certificates, relative to sorting.

    python bench/martingale.py
    python bench/martingale.py --sizes 1000,128256 --drafts 4 --seconds 5
    python bench/martingale.py --sizes 131072 --rules all

The plan, the whole solve with its certificate, one read of p and q (their sums), and
`numpy.argsort` of V random doubles are timed in turn; the ratios are those of the minimum times.
`--rules` times the certificates of other rules in the same way.  All calls run on one core, and
times are the processor time of the thread, to reduce disturbances by other programs.  All data are
synthetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import click
import numpy as np
from measuring import report, seconds_of

import otlp
from otlp.certificate import certify
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress
from otlp.data.synthetic import generate
from otlp.distribution import FloatArray, softmax
from otlp.solvers import Martingale, make_solver
from otlp.timing import Stopwatch

TUPLES = 100
"""Number of drafted tuples whose verified token and selection are timed once."""


def pairs(vocab_size: int) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    rng = np.random.default_rng(0)
    row = generate(1, vocab_size)
    target, draft = softmax(row.target_logits[0]), softmax(row.draft_logits[0])
    yield "like a language model", target, draft
    flat = np.ones(vocab_size)
    yield "Dirichlet(1)", rng.dirichlet(flat), rng.dirichlet(flat)


def in_turn(calls: dict[str, Callable[[], object]], budget: float) -> dict[str, list[float]]:
    """Return the processor seconds of each call, called in turn at least 15 times."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in [*calls.values()] * 2:
        call()
    end = perf_counter() + budget
    while perf_counter() < end or len(times[next(iter(calls))]) < 15:
        for name, call in calls.items():
            times[name].append(seconds_of(call, thread_time))
    return times


def certificates(vocab_size: int, budget: float) -> Iterator[dict[str, Any]]:
    """Yield times of rules with closed-form plans, and of their certificates."""
    _, target, draft = next(pairs(vocab_size))
    numbers = np.random.default_rng(0).random(vocab_size)
    iid = otlp.IID(draft, 4)
    schemes = {
        "speculative-sampling": otlp.IID(draft, 1),
        "naive": iid,
        "k-seq": iid,
        "recursive-rejection": iid,
        "greedy": otlp.Greedy(draft, 4),
        "hub": otlp.Hub(draft),
        "martingale": iid,
    }
    for name, scheme in schemes.items():
        problem, solver = otlp.Problem(target, scheme), make_solver(name)
        answer = solver.answer(problem, Stopwatch())
        calls: dict[str, Callable[[], object]] = {
            "argsort": lambda: np.argsort(numbers),
            "certificate": partial(certify, problem, name, answer, Stopwatch()),
            "solve": partial(solver.solve, problem),
        }
        least = {what: min(each) for what, each in in_turn(calls, budget).items()}
        yield {
            "rule": name,
            "V": vocab_size,
            "n": problem.n,
            "argsort ms": 1e3 * least["argsort"],
            "certificate": least["certificate"] / least["argsort"],
            "solve": least["solve"] / least["argsort"],
        }


def measure(name: str, problem: otlp.Problem, budget: float) -> dict[str, Any]:
    """Return times of one problem; the minimum for solves and sorts."""
    rng = np.random.default_rng(0)
    numbers = rng.random(problem.vocab_size)
    solver = Martingale()
    solution = solver.solve(problem)
    assert isinstance(problem.drafts, otlp.IID)
    target, draft = problem.target, problem.drafts.draft
    times = in_turn(
        {
            "argsort": lambda: np.argsort(numbers),
            "read": lambda: target.sum() + draft.sum(),
            "plan": lambda: solver.answer(problem, Stopwatch()),
            "solve": lambda: solver.solve(problem),
        },
        budget,
    )
    least = {name: min(each) for name, each in times.items()}
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
        "argsort ms": 1e3 * least["argsort"],
        "read": least["read"] / least["argsort"],
        "plan": least["plan"] / least["argsort"],
        "solve": least["solve"] / least["argsort"],
        "of medians": float(np.median(times["solve"]) / np.median(times["argsort"])),
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
    default="1000,8192,49152,128256,262144",
    type=ListOf(click.IntRange(1000)),
    help="Vocabulary sizes, each at least 1000.",
)
@click.option(
    "--drafts", default="2,3,4,8,16,64", type=ListOf(click.IntRange(1)), help="Numbers of drafts."
)
@click.option("--seconds", default=1.0, help="Seconds to repeat each solve.")
@click.option(
    "--rules",
    default="no",
    type=click.Choice(["no", "all"]),
    help="Time the certificates of other rules instead of the solver.",
)
@json_option("Also write all numbers to this file.")
def main(
    sizes: tuple[int, ...],
    drafts: tuple[int, ...],
    seconds: float,
    rules: str,
    json_path: Path | None,
) -> None:
    timings: list[dict[str, Any]] = []
    if rules == "all":
        with progress("certificates", len(sizes)) as step:
            for vocab_size in sizes:
                timings.extend(certificates(vocab_size, seconds))
                step(f"V = {vocab_size:,}")
        report("certificates of rules, relative to a sort", timings, json_path)
        return
    with progress("martingale", 2 * len(sizes) * len(drafts)) as step:
        for vocab_size in sizes:
            for name, target, draft in pairs(vocab_size):
                for n in drafts:
                    problem = otlp.Problem(target, otlp.IID(draft, n))
                    timings.append(measure(name, problem, seconds))
                    step(f"{name}, V = {vocab_size:,}, n = {n}")
    report("martingale: plan and certified solve, relative to a sort", timings, json_path)


if __name__ == "__main__":
    main()
