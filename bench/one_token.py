"""Time of one verified token, prepared (no certificate) and solved (certified).

    python bench/one_token.py

Milliseconds of all steps for a new pair of distributions: the draft scheme, the problem, the plan
and one sample; the median over repeats.  Distributions are synthetic: normal logits for the target,
and added noise for the draft.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from measuring import repeated, report

import otlp
from otlp.cli.options import ListOf, json_option
from otlp.cli.output import progress
from otlp.drafts.by_name import make_scheme
from otlp.solvers import SOLVERS

CASES = (
    ("naive", "iid"),
    ("k-seq", "iid"),
    ("recursive-rejection", "iid"),
    ("recursive-rejection", "without-replacement"),
    ("hub", "hub"),
    ("greedy", "greedy"),
    ("martingale", "iid"),
    ("global-resolution", "iid"),
    ("orderings", "without-replacement"),
)


def measure(name: str, scheme: str, vocab_size: int, n: int, repeats: int) -> tuple[float, float]:
    """Return the milliseconds of one token, prepared and solved."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal(vocab_size)
    p, q = otlp.softmax(logits), otlp.softmax(logits + rng.standard_normal(vocab_size))
    count = 2 if scheme == "hub" else n
    tuples = make_scheme(scheme, q, count).sample(rng, 50)
    solver = SOLVERS[name]()

    def prepared() -> int:
        problem = otlp.Problem(p, make_scheme(scheme, q, count))
        return solver.prepare(problem).sample(tuples[rng.integers(50)], rng)

    def solved() -> int:
        plan = solver.solve(otlp.Problem(p, make_scheme(scheme, q, count))).plan
        assert plan is not None
        return plan.sample(tuples[rng.integers(50)], rng)

    quick, certified = repeated(prepared, repeats), repeated(solved, max(3, repeats // 5))
    return 1e3 * float(np.median(quick)), 1e3 * float(np.median(certified))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--vocab-size", type=ListOf(click.IntRange(10)), default="4096,128256")
@click.option("-n", "n", type=click.IntRange(1), default=4)
@click.option("--repeats", type=click.IntRange(1), default=25)
@json_option("Write the times to this file.")
def main(vocab_size: tuple[int, ...], n: int, repeats: int, json_path: Path | None) -> None:
    rows = []
    with progress("measuring", len(CASES) * len(vocab_size)) as step:
        for name, scheme in CASES:
            for size in vocab_size:
                quick, certified = measure(name, scheme, size, n, repeats)
                own = {"rule": name, "drafts": scheme, "V": size}
                rows.append({**own, "prepared": quick, "solved": certified})
                step(f"{name}, {scheme}, V = {size}")
    report(f"ms for one token, n = {n}", rows, json_path)


if __name__ == "__main__":
    main()
