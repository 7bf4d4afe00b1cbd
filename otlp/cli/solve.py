"""``otlp solve``: one row of a capture, and the certificate of its solution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.ending import AnswerIsNo
from otlp.cli.options import SolverName
from otlp.cli.output import facts, progress, write_result
from otlp.cli.rows import ChosenRows
from otlp.solution import Solution
from otlp.solvers import make_solver
from otlp.studies.attempt import settled, warm
from otlp.studies.benchmark import small_problems


@click.command(
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
@click.option("--solver", type=SolverName(), default="auto", help="A solver by its name.")
@options.engine_option()
@click.option("-o", "--option", "options", multiple=True, help="A solver's option, as name=value.")
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
        raise click.UsageError(f"of {', '.join(options)} one is given twice")
    chosen = make_solver(solver, **given)
    single = ChosenRows.single(capture, row)
    instance = single.problem(row, n, **cut)
    with progress("solving", None):
        begun = perf_counter()
        warm(chosen, small_problems(single.capture))
        loaded = perf_counter() - begun
        solution = settled(lambda: chosen.solve(instance))
    solution = replace(solution, timings=replace(solution.timings, load=loaded))
    asked = {"row": row, "n": n, **cut, "options": list(options)}
    open_end = single.truncations(**cut)
    found = {**solution.to_dict(), "truncation": open_end[0]}
    write_result(json_path, "solve", {**single.source, **asked, **found})
    _print(solution)
    single.say_truncations(open_end)
    if solution.plan is None:
        raise AnswerIsNo


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
        "loading": f"{timings.load:.2f} s before that, at a process's first solve",
        "message": solution.message,
    }
    facts(f"{solution.solver}: {solution.guarantee.name}", content)
