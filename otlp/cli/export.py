"""``otlp export``: write the linear program of one row for another solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from otlp.checks import MEMORY_LIMIT
from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_argument
from otlp.cli.options import ByteCount, OutputFile
from otlp.cli.output import facts, progress, write_result, write_whole
from otlp.cli.rows import ChosenRows
from otlp.export import LPArrays, lp_arrays, write_arrays
from otlp.export.mps import mps_lines

STEP = 2**12
"""Number of lines between two updates of the progress bar."""


@options.grouped_command(
    epilog="""\b
Examples:
  otlp export --to row.mps --top-k 10 --n 3            Eq. 2 of Global Resolution, by token sets
  otlp export --to row.mps --top-k 10 --n 3 --form full             Eq. 1, tuple by tuple
  otlp export mine.safetensors --row 7 --scheme without-replacement --top-k 20 --to row.npz
  highs row.mps    |    gurobi_cl row.mps    |    scip -f row.mps    |    cplex -c "read row.mps"
"""
)
@capture_argument
@click.option(
    "--to",
    type=OutputFile(lambda: (".mps", ".npz")),
    required=True,
    help="File to write: .mps (free format, for any LP solver) or .npz (arrays for SciPy).",
)
@options.row_option()
@options.n_option(2)
@click.option(
    "--form",
    type=click.Choice(["relaxed", "full"]),
    default="relaxed",
    help="Variables: one per set of draft tokens and member (relaxed), or one per draft tuple and "
    "verified token (full); Eq. 2 and Eq. 1 of the paper Global Resolution.",
)
@options.scheme_option()
@options.row_options()
@click.option(
    "--memory-limit",
    type=ByteCount(),
    default=MEMORY_LIMIT,
    show_default="2GiB",
    help="Memory limit of the linear program, such as 8GiB.",
)
@options.json_option("Write the sizes and the optimum to a file.")
def command(
    capture: CaptureFile,
    to: Path,
    row: int,
    n: int,
    form: str,
    scheme: str,
    memory_limit: int,
    json_path: Path | None,
    **cut: Any,
) -> None:
    """Write the linear program of one row of a capture for another solver.

    A comment in the .mps file contains the optimum.
    """
    single = ChosenRows(capture.path, capture.open(), [row])
    with progress("building", None):
        lp = lp_arrays(single.problem(row, n, scheme=scheme, **cut), form, memory_limit)
    inputs = {"row": row, "n": n, "scheme": scheme, **cut}
    settings = {"capture": single.source["capture"], **inputs}
    comment = [f"{name} = {value}" for name, value in settings.items() if value is not None]
    write_whole(to, lambda temporary: _write(lp, temporary, ", ".join(comment)))
    content = {
        "form": form,
        "variables": f"{len(lp.variables):,}",
        "rows": f"{len(lp.rows_ub):,} upper bounds, {len(lp.rows_eq):,} equations",
        "minimum": f"{-lp.optimum:.12f}, minus the optimal acceptance",
    }
    sizes = {
        "path": str(to),
        "form": form,
        "variables": len(lp.variables),
        "upper_bounds": len(lp.rows_ub),
        "equations": len(lp.rows_eq),
        "optimum": lp.optimum,
    }
    write_result(json_path, "export", {**single.source, **inputs, **sizes})
    facts(str(to), content)


def _write(lp: LPArrays, path: Path, note: str) -> None:
    if path.suffix.lower() == ".npz":
        write_arrays(lp, path)
        return
    with progress("writing", len(lp.variables)) as step, open(path, "w", encoding="ascii") as file:
        for number, line in enumerate(mps_lines(lp, note)):
            file.write(line)
            if number % STEP == 0:
                step("", min(number, len(lp.variables)))
