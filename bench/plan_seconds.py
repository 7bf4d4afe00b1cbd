"""Comparison of reported plan seconds with the time of a plan without a certificate.

    python bench/plan_seconds.py                     # 50 rows: about four minutes
    python bench/plan_seconds.py --rows 5 --solvers naive,martingale

Measures `timings.plan` of `solve` in turn with a plan without a certificate, which is timed from
outside.  Both have warm caches and new problems of the built-in capture: two drafts of the full
vocabulary and of the top 100 tokens, with the scheme of the solver (one draft for
`speculative-sampling`).  The ratio is that of the medians and should be between .8 and 1.3.  The
plan timed from outside is

- `prepare`, if the solver promises a lossless plan;
- `prepare` and then `finished`, if `prepare` does not solve the systems until a tuple needs them
  (`slackness`, `global-resolution`);
- `supports` and `write`, if the solver makes no promise, so that `prepare` is `solve`
  (`max-flow`, `linear-program`, `auto`).

The times do not include loading and compiling: each solver runs on a row before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
from measuring import report, seconds_of

import otlp
from otlp import captures
from otlp.cli.options import json_option, rows_option, solvers_option
from otlp.cli.output import note, progress
from otlp.data.spread_rows import spread_rows
from otlp.drafts.by_name import make_scheme
from otlp.plan import Plan
from otlp.solvers import SOLVERS, Solver
from otlp.solvers.prepared import Prepared, SystemSolver

SCHEMES = {"hub": "hub", "greedy": "greedy", "random-ranks": "without-replacement"}
"""Draft schemes of solvers that are not for i.i.d. drafts."""

WITHIN = 0.8, 1.3

QUICK, TOUCHES = 5e-3, 5
"""Number of plans made before a plan that takes less than `QUICK` s, to warm the caches."""

Pair = tuple[Any, Any]


def uncertified(solver: Solver) -> tuple[str, Callable[[otlp.Problem], Plan]]:
    """Return the name and the function of a solver's plan without a certificate."""

    def write(problem: otlp.Problem) -> Plan:
        solver.supports(problem).require(solver.name)
        return solver.write(problem)

    def finish(problem: otlp.Problem) -> Plan:
        plan = solver.prepare(problem)
        return plan.finished() if isinstance(plan, Prepared) else plan

    if solver.promise < otlp.Guarantee.LOSSLESS:
        return "write", write
    if isinstance(solver, SystemSolver):
        return "prepare, finished", finish
    return "prepare", solver.prepare


def measure(
    solver: Solver, scheme: str, n: int, pairs: Iterable[Pair]
) -> tuple[list[float], list[float]]:
    """Return the seconds of plans, reported and from outside; pairs are made one by one.

    The pairs of all rows would spread the heap so that a plan's arrays are not in the caches.
    """

    def problem(pair: Pair) -> otlp.Problem:
        return otlp.Problem(pair[0], make_scheme(scheme, pair[1], n))

    _, plan = uncertified(solver)
    quick: bool | None = None
    reported: list[float] = []
    outside: list[float] = []
    for pair in pairs:
        if quick is None:
            solver.solve(problem(pair))
            plan(problem(pair))
            again = problem(pair)
            quick = seconds_of(partial(plan, again)) < QUICK
        for by_solve in (True, False):
            kept: object = None  # freed first, so that both methods find the same memory
            for _ in range(TOUCHES if quick else 0):
                plan(problem(pair))
            given = problem(pair)
            if by_solve:
                kept = solution = solver.solve(given)
                reported.append(solution.timings.plan)
            else:
                begin = perf_counter()
                kept = plan(given)
                outside.append(perf_counter() - begin)
    del kept
    return reported, outside


@click.command(help=__doc__.replace("\n    ", "\n\n    "), context_settings={"show_default": True})
@rows_option(50)
@solvers_option(",".join(SOLVERS))
@json_option("Also write all numbers to this file.")
def main(rows: int, solvers: tuple[str, ...], json_path: Path | None) -> None:
    capture = captures.builtin()
    chosen = spread_rows(len(capture), rows)
    found, reasons = [], []
    with progress("solving", 2 * len(solvers)) as step:
        for k in (None, 100):
            first = capture.distributions(chosen[0], top_k=k)
            for name in solvers:
                solver, scheme = SOLVERS[name](), SCHEMES.get(name, "iid")
                n = 1 if name == "speculative-sampling" else 2
                size = f"({k or capture.vocab_size:,}, {n})"
                able = solver.supports(otlp.Problem(first[0], make_scheme(scheme, first[1], n)))
                if able:
                    pairs = (capture.distributions(row, top_k=k) for row in chosen)
                    reported, outside = map(median, measure(solver, scheme, n, pairs))
                    ratio = reported / outside
                    found.append(
                        {
                            "(k, n)": size,
                            "solver": name,
                            "drafts": scheme,
                            "plan ms": 1e3 * reported,
                            "ms outside": 1e3 * outside,
                            "by": uncertified(solver)[0],
                            "ratio": ratio,
                            "within": "yes" if WITHIN[0] <= ratio <= WITHIN[1] else "NO",
                        }
                    )
                else:
                    reasons.append(f"{size} {name}: {able.reason}")
                step(f"{size} {name}")
    report(f"timings.plan and a plan without a certificate, {len(chosen)} rows", found, json_path)
    for reason in reasons:
        note(reason)


if __name__ == "__main__":
    main()
