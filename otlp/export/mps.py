"""Linear programs as free-format MPS files, which most linear programming solvers read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

from otlp.data.whole_file import whole_file
from otlp.errors import clean
from otlp.export.arrays import LPArrays

OBJECTIVE = "minus_acceptance"


def write_mps(lp: LPArrays, path: str | os.PathLike[str], note: str = "") -> None:
    """Write a linear program to an MPS file, atomically.

    Parameters
    ----------
    lp : LPArrays
        Linear program from `lp_arrays`.
    path : path
        Path of the file, such as ``problem.mps``.
    note : str
        Comment on the problem, written to the file.

    Raises
    ------
    OSError
        If the file cannot be written.

    Notes
    -----
    The file is in free format, which HiGHS, Gurobi, SCIP, CPLEX and GLPK read (some need an option
    for free format).  The objective is minimised, which is the default of all these solvers; a
    comment at the top states the optimum.  Numbers are written to the last bit; see the notes of
    `lp_arrays` on tolerances.

    Examples
    --------
    >>> import os, tempfile, otlp
    >>> from otlp.export import lp_arrays, write_mps
    >>> path = os.path.join(tempfile.mkdtemp(), "problem.mps")
    >>> write_mps(lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2))), path)
    >>> "ROWS" in open(path).read()
    True
    """
    with whole_file(path) as temporary, open(temporary, "w", encoding="ascii") as file:
        file.writelines(mps_lines(lp, note))


def mps_lines(lp: LPArrays, note: str = "") -> Iterator[str]:
    """Yield the lines of the file, with all lines of a variable together; see `write_mps`."""
    from scipy.sparse import vstack

    rows = (*lp.rows_ub, *lp.rows_eq)
    yield from (
        f"* Optimal transport LP of multi-draft speculative sampling, {lp.form} form\n",
        *(f"* {clean(line)}\n".encode("ascii", "replace").decode() for line in note.splitlines()),
        f"* {len(rows)} rows, {len(lp.variables)} variables\n",
        f"* Minimum {-lp.optimum!r}: the optimal acceptance is {lp.optimum!r}\n",
        "* Masses can be far below the usual tolerance of 1e-6: set feasibility to 1e-9 or less\n",
        f"NAME otlp_{lp.form}\n",
        f"ROWS\n N {OBJECTIVE}\n",
    )
    yield from (f" L {name}\n" for name in lp.rows_ub)
    yield from (f" E {name}\n" for name in lp.rows_eq)
    yield "COLUMNS\n"
    matrix = vstack((lp.A_ub, lp.A_eq)).tocsc()
    for j, (name, cost) in enumerate(zip(lp.variables, lp.c.tolist(), strict=True)):
        at = slice(matrix.indptr[j], matrix.indptr[j + 1])
        entries = zip(matrix.indices[at].tolist(), matrix.data[at].tolist(), strict=True)
        objective = f" {name} {OBJECTIVE} {cost!r}\n" if cost else ""
        yield objective + "".join(f" {name} {rows[i]} {value!r}\n" for i, value in entries)
    yield "RHS\n"
    limits = chain(lp.b_ub.tolist(), lp.b_eq.tolist())
    yield from (f" RHS {name} {limit!r}\n" for name, limit in zip(rows, limits, strict=True))
    yield "ENDATA\n"
