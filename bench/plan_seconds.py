"""The seconds that a solution reports for its plan, against those that the plan alone takes.

    python bench/plan_seconds.py                     # 50 rows: some four minutes
    python bench/plan_seconds.py --rows 5 --solvers naive,martingale

`timings.plan` of `solve`, in turn with a plan without a certificate, timed from outside, both with
warm caches, on fresh problems of the built-in capture: two drafts of the full vocabulary and of the
top 100 tokens, by the scheme that the solver is for (one draft for `speculative-sampling`).  The
ratio is that of the medians; it should lie between .8 and 1.3.  What is timed from outside is

- `prepare`, where the solver promises a lossless plan;
- `prepare` and then `finished`, where that leaves both systems to be solved until a tuple needs
  one (`slackness`, `global-resolution`);
- `supports` and `write`, where the solver promises nothing, so that `prepare` is `solve` itself
  (`max-flow`, `linear-program`, `auto`).

Loading and compiling are in neither: each solver is run on a row before.
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
"""What a solver is for, where that is not i.i.d. drafts."""

WITHIN = 0.8, 1.3

QUICK, TOUCHES = 5e-3, 5
"""Of a plan that takes less, so many beforehand: a certificate leaves it cold caches."""

Pair = tuple[Any, Any]


def alone(solver: Solver) -> tuple[str, Callable[[otlp.Problem], Plan]]:
    """How the solver gives a whole plan without a certificate, in words and as a function."""

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
    """Seconds of plans, as reported and from outside; pairs are made one by one.

    Those of all rows at once would leave a heap so wide that a plan's arrays are cold.
    """

    def problem(pair: Pair) -> otlp.Problem:
        return otlp.Problem(pair[0], make_scheme(scheme, pair[1], n))

    _, plan = alone(solver)
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
            kept: object = None  # freed before the touches, so that both find the same memory
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
@json_option("Also write all numbers.")
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
                            "by": alone(solver)[0],
                            "ratio": ratio,
                            "within": "yes" if WITHIN[0] <= ratio <= WITHIN[1] else "NO",
                        }
                    )
                else:
                    reasons.append(f"{size} {name}: {able.reason}")
                step(f"{size} {name}")
    report(f"timings.plan against a plan alone, {len(chosen)} rows", found, json_path)
    for reason in reasons:
        note(reason)


if __name__ == "__main__":
    main()
