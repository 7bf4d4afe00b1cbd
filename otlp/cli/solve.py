"""``otlp solve``: solve one row of a capture and print the certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.exit_status import CheckFailed
from otlp.cli.options import SolverName
from otlp.cli.output import facts, progress, write_result
from otlp.cli.rows import ChosenRows
from otlp.solution import Solution
from otlp.solvers import make_solver
from otlp.studies.attempt import warm, without_compiling


@options.grouped_command(
    epilog="""\b
Examples:
  otlp solve                                   first row of the built-in capture, n = 2
  otlp solve --row 7 --n 4 --temperature 0.6
  otlp solve mine.safetensors --top-k 50 --solver max-flow
  otlp solve --solver max-flow --engine graph-tool --top-k 50
  otlp solve --scheme without-replacement --n 3
  otlp solve --solver linear-program -o form=full --top-k 4
"""
)
@capture_argument
@options.row_option()
@options.n_option(2)
@options.scheme_option()
@options.row_options()
@click.option("--solver", type=SolverName(), default="auto", help="Name of the solver.")
@options.engine_option()
@click.option("-o", "--option", "options", multiple=True, help="Solver option, as name=value.")
@options.json_option("Write the certificate to a file.")
def command(
    capture: CaptureFile,
    row: int,
    n: int,
    solver: str,
    engine: str | None,
    options: tuple[str, ...],
    json_path: Path | None,
    **cut: Any,
) -> None:
    """Solve one row of a capture and print its certificate."""
    options += () if engine is None else (f"engine={engine}",)
    given = dict(map(_parse_option, options))
    if len(given) < len(options):
        raise click.UsageError(f"each -o option must be given once, got {', '.join(options)}")
    chosen = make_solver(solver, **given)
    single = ChosenRows(capture.path, capture.open(), [row])
    instance = single.problem(row, n, **cut)
    with progress("solving", None):
        begun = perf_counter()
        warm(chosen)
        loaded = perf_counter() - begun
        solution = without_compiling(lambda: chosen.solve(instance))
    solution = replace(solution, timings=replace(solution.timings, load=loaded))
    inputs = {"row": row, "n": n, **cut, "options": list(options)}
    truncation = single.truncations(**cut)
    found = {**solution.to_dict(), "truncation": truncation[0]}
    write_result(json_path, "solve", {**single.source, **inputs, **found})
    _print(solution)
    single.print_truncation(truncation)
    if solution.plan is None:
        raise CheckFailed


def _parse_option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"option must be name=value, got {text!r}", param_hint="-o")
    for convert in (int, float):
        try:
            return name.replace("-", "_"), convert(value)
        except ValueError:
            continue
    return name.replace("-", "_"), value


def _print(solution: Solution) -> None:
    timings = solution.timings
    content = {
        "status": solution.status.value,
        "acceptance": f"{solution.acceptance:.12f}",
        "upper bound": f"{solution.upper_bound:.12f}",
        "gap": f"{solution.gap:.2e}",
        "marginal error": f"{solution.marginal_error:.2e} ({solution.marginal_method})",
        "size of H*": "-" if solution.subset is None else f"{solution.subset.sum():,}",
        "time": f"{1e3 * timings.plan:.3f} ms, {1e3 * timings.total:.3f} ms with certificate",
        "loading": f"{timings.load:.2f} s beforehand, once per process",
        "message": solution.message,
    }
    facts(f"{solution.solver}: {solution.guarantee.name}", content)
