"""``otlp solve``: one row of a capture, and the certificate of its solution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from otlp.cli.options import (
    capture_argument,
    json_option,
    open_capture,
    problem,
    row_options,
    say_truncations,
    scheme_option,
    truncations,
)
from otlp.cli.output import console, facts, write_json
from otlp.solution import Solution
from otlp.solvers import make_solver
from otlp.studies.attempt import settled, warm
from otlp.studies.benchmark import small_problems

NUMBERS = ("acceptance", "upper_bound", "gap", "marginal_error", "marginal_method")


@click.command(
    epilog="""\b
Examples:
  otlp solve                                   first row of the built-in capture, n = 2
  otlp solve --row 7 --n 4 --temperature 0.6
  otlp solve mine.safetensors --top-k 50 --solver max-flow
  otlp solve --scheme without-replacement --n 3
  otlp solve --solver linear-program -o form=full --top-k 4
"""
)
@capture_argument
@click.option("--row", type=int, default=0, help="Which row of the capture.")
@click.option("--n", type=int, default=2, help="Number of drafts.")
@scheme_option
@row_options()
@click.option("--solver", default="auto", help="A solver's name.")
@click.option("-o", "--option", "options", multiple=True, help="A solver's option, as name=value.")
@json_option("Write the certificate to a file.")
def command(
    capture: str | None,
    row: int,
    n: int,
    solver: str,
    options: tuple[str, ...],
    json_path: Path | None,
    **cut: Any,
) -> None:
    """Solve one row of a capture and print its certificate."""
    data = open_capture(capture)
    instance = problem(data, row, n, **cut)
    chosen = make_solver(solver, **dict(map(_parse_option, options)))
    warm([chosen], small_problems(data))
    solution = settled(lambda: chosen.solve(instance))
    if json_path:
        write_json(
            json_path, certificate(solution) | {"truncation": truncations(data, [row], **cut)[0]}
        )
    console.print(_table(solution))
    say_truncations(data, truncations(data, [row], **cut))
    if solution.plan is None:
        raise SystemExit(1)


def certificate(solution: Solution) -> dict[str, Any]:
    """Collect the certificate in plain numbers."""
    return {
        "solver": solution.solver,
        "status": solution.status.name,
        "guarantee": solution.guarantee.name,
        **{name: getattr(solution, name) for name in NUMBERS},
        "subset_size": None if solution.subset is None else int(solution.subset.sum()),
        "seconds": solution.timings.total,
        "message": solution.message,
    }


def _parse_option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not of the form name=value", param_hint="-o")
    for convert in (int, float):
        try:
            return name.replace("-", "_"), convert(value)
        except ValueError:
            continue
    return name.replace("-", "_"), value


def _table(solution: Solution) -> Table:
    content = {
        "status": solution.status.value,
        "acceptance": f"{solution.acceptance:.12f}",
        "upper bound": f"{solution.upper_bound:.12f}",
        "gap": f"{solution.gap:.2e}",
        "marginal error": f"{solution.marginal_error:.2e} ({solution.marginal_method})",
        "size of H*": "-" if solution.subset is None else f"{solution.subset.sum():,}",
        "time": f"{1e3 * solution.timings.total:.3f} ms",
        "message": solution.message,
    }
    return facts(f"{solution.solver}: {solution.guarantee.name}", content)
