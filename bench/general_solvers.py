"""Times of the general solvers by engine, form and problem size.

    python bench/general_solvers.py                  # 15 minutes
    python bench/general_solvers.py --rows 1 --time-limit 5

Milliseconds of a whole solve including the certificate: the median over rows of the built-in
capture, each solved once, after a small problem.  A cell ends at the first row that is rejected for
its size, or takes longer than `--time-limit`.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import click

import otlp
from otlp import captures
from otlp.cli.options import rows_option, time_limit_option
from otlp.cli.output import note, progress, show, table
from otlp.data.spread_rows import spread_rows
from otlp.errors import OTLPError
from otlp.solvers import Solver, make_solver
from otlp.solvers.table import SolverName

SOLVERS: tuple[tuple[SolverName, dict[str, Any]], ...] = (
    ("max-flow", {}),
    ("linear-program", {"form": "relaxed"}),
    ("linear-program", {"form": "full"}),
)
SIZES = ((10, 2), (10, 3), (10, 4), (10, 5), (100, 2), (100, 3), (1000, 2))
"""Top-k and n."""


def cell(solver: Solver, problems: list[otlp.Problem]) -> str:
    """Return the median milliseconds, or "too long".

    Raises
    ------
    OTLPError
        If the solver rejects a problem, or is not installed.
    """
    times = []
    for problem in problems:
        solution = solver.solve(problem)
        if solution.plan is None:
            return "too long"
        times.append(1e3 * solution.timings.total)
    return f"{median(times):.3g}"


@click.command(help=__doc__.replace("\n    ", "\n\n    "), context_settings={"show_default": True})
@rows_option(3)
@time_limit_option(60.0)
def main(rows: int, time_limit: float) -> None:
    capture = captures.builtin()
    chosen = spread_rows(len(capture), rows)
    pairs = {k: [capture.distributions(row, top_k=k) for row in chosen] for k, _ in SIZES}
    made = table("(k, n)", *map(str, SIZES))
    reasons: dict[str, str] = {}
    with progress("solving", len(SOLVERS) * len(SIZES)) as step:
        for name, options in SOLVERS:
            label = ", ".join([name, *options.values()])
            solver = make_solver(name, time_limit=time_limit, **options)
            cells: list[str] = []
            for k, n in SIZES:
                problems = [otlp.Problem(p, otlp.IID(q, n)) for p, q in pairs[k]]
                try:
                    if not cells:
                        solver.solve(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], 2)))
                    cells.append(cell(solver, problems))
                except OTLPError as error:
                    cells.append("-")
                    reasons.setdefault(label, str(error))
                step(f"{label} {(k, n)}")
            made.add_row(label, *cells)
    show(made)
    for label, reason in reasons.items():
        note(f"{label}: {reason}")


if __name__ == "__main__":
    main()
