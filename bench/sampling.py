"""Time verified tokens: one by one, many at once, and batched in PyTorch, in one run.

    python bench/sampling.py
    python bench/sampling.py --vocab 4096,128256 --solvers martingale,orderings --tokens 100000

`sample` and `sample_many` verify tuples of one synthetic row, whose plan is solved beforehand;
checks of the tuples are in the time.  `otlp.batched.verify` takes a row of its own for each tuple,
as a serving engine has them, and finds the plan in the same call.  All on one core.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from measuring import repeated, report

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress
from otlp.data.synthetic import generate

ONE_BY_ONE = 20_000
"""Tuples that are verified in a loop."""

BATCHED_MEMORY = 2**28
"""Bytes of the batched rows, target and draft together."""


Row = dict[str, Any]
"""By the least seconds of some rounds; the share of verified tokens that were drafted."""


def row(
    problem: otlp.Problem, solver: str, way: str, rate: float, share: float, exact: float
) -> Row:
    return {"V": problem.vocab_size, "n": problem.n, "solver": solver, "way": way,
            "tokens/s": rate, "accepted": share, "exact": exact}  # fmt: skip


def measure(problem: otlp.Problem, solver: str, tokens: int, rounds: int) -> list[Row]:
    solution = otlp.solve(problem, solver)
    plan, rng = solution.plan, np.random.default_rng(0)
    assert plan is not None
    drafted = problem.drafts.sample(rng, tokens)
    few = drafted[:ONE_BY_ONE]
    ways = {
        "sample": (few, lambda: np.array([plan.sample(row, rng) for row in few])),
        "sample_many": (drafted, lambda: plan.sample_many(drafted, rng)),
    }
    rows = []
    for way, (tuples, verify) in ways.items():
        rate = len(tuples) / repeated(verify, rounds).min()
        share = float((tuples == verify()[:, None]).any(axis=1).mean())
        rows.append(row(problem, solver, way, rate, share, solution.acceptance))
    return rows


def measure_batched(problem: otlp.Problem, rounds: int) -> Row:
    import torch

    from otlp import batched

    torch.set_num_threads(1)
    count = max(1, BATCHED_MEMORY // (16 * problem.vocab_size))
    rows = generate(min(count, 64), problem.vocab_size, seed=1)
    repeats = -(-count // len(rows))
    p, q = (
        batched.softmax(torch.tensor(logits)).repeat(repeats, 1)[:count]
        for logits in (rows.target_logits, rows.draft_logits)
    )
    generator = torch.Generator().manual_seed(0)
    drafted = batched.sample(q, problem.n, generator)
    seconds = repeated(lambda: batched.verify(p, q, drafted, generator), rounds).min()
    _, accepted = batched.verify(p, q, drafted, generator)
    exact = float(batched.acceptance(p, q, drafted, validate=False).acceptance.mean())
    share = float(accepted.double().mean())
    return row(problem, "martingale", "otlp.batched", count / seconds, share, exact)


@click.command(
    help=__doc__.replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"show_default": True},
)
@click.option("--vocab", default="4096", type=ListOf(click.IntRange(1000)))
@click.option("--n", default=4, help="Number of drafts.")
@click.option(
    "--solvers",
    default="martingale,k-seq,recursive-rejection,naive",
    type=ListOf(click.Choice(list(otlp.solvers.SOLVERS))),
)
@click.option("--tokens", default=1_000_000, type=click.IntRange(1), help="For sample_many.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="The least time counts.")
@json_option("Also write all numbers.")
def main(
    vocab: tuple[int, ...],
    n: int,
    solvers: tuple[str, ...],
    tokens: int,
    rounds: int,
    json_path: Path | None,
) -> None:
    found: list[Row] = []
    torch = find_spec("torch") is not None
    with progress("sampling", len(vocab) * (len(solvers) + torch)) as step:
        for vocab_size in vocab:
            row = generate(1, vocab_size)
            target, draft = row.distributions(0)
            problem = otlp.Problem(target, otlp.IID(draft, n))
            for solver in solvers:
                step(f"{solver}, V = {vocab_size:,}")
                found += measure(problem, solver, tokens, rounds)
            if torch:
                step(f"otlp.batched, V = {vocab_size:,}")
                found.append(measure_batched(problem, rounds))
    report("verified tokens", found, json_path)


if __name__ == "__main__":
    main()
