"""The rows of a sweep as a table: a dictionary of columns, of which data frames are made."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from otlp.errors import InvalidInputError
from otlp.parallel.solve_many import Row

COLUMNS: dict[str, type] = {
    "row": int,
    "solver": str,
    "status": str,
    "guarantee": str,
    "acceptance": float,
    "upper_bound": float,
    "gap": float,
    "marginal_error": float,
    "subset_size": int,
    "plan_seconds": float,
    "total_seconds": float,
    "load_seconds": float,
    "message": str,
}
"""Names of the columns, and the types of what is in them."""

MISSING = {int: None, float: math.nan, str: ""}


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Collect the certificates of many rows, column by column; plans are let go.

    Other libraries make frames of it: ``pandas.DataFrame(columns(rows))``, and so polars.

    Parameters
    ----------
    rows : iterable of Row
        Such as ``otlp.solve_many(problems, plans=False)``.

    Returns
    -------
    dict of list
        `COLUMNS`, one entry a row, in the order of the rows.  ``row``, ``status`` and
        ``message`` say where and why an error was raised; what it left unknown is NaN in a column
        of floats, "" in one of words, None in ``subset_size``.  ``plan_seconds`` are the
        solver's, ``total_seconds`` include the certificate, and ``load_seconds``, of loading and
        compiling, are in neither.

    Raises
    ------
    InvalidInputError
        If these are no rows.

    Examples
    --------
    >>> import otlp
    >>> from otlp.parallel.table import columns
    >>> problems = otlp.CaptureProblems(otlp.captures.builtin(), n=4)[:3]
    >>> table = columns(otlp.solve_many(problems, plans=False))
    >>> table["row"], table["guarantee"], [round(found, 4) for found in table["acceptance"]]
    ([0, 1, 2], ['OPTIMAL', 'OPTIMAL', 'OPTIMAL'], [0.9554, 1.0, 0.0266])
    """
    try:
        each = iter(rows)
    except TypeError:
        raise _no_rows(rows) from None
    table: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in each:
        known = _known(row)
        for name, kind in COLUMNS.items():
            table[name].append(known.get(name, MISSING[kind]))
    return table


def _known(row: Row) -> dict[str, Any]:
    if not isinstance(row, Row):
        raise _no_rows(row)
    known = {"row": row.row, "status": row.status, "message": row.reason}
    solution = row.solution
    if solution is None:
        return known
    subset = solution.subset
    return known | {
        "solver": solution.solver,
        "guarantee": solution.guarantee.name,
        "acceptance": solution.acceptance,
        "upper_bound": solution.upper_bound,
        "gap": solution.gap,
        "marginal_error": solution.marginal_error,
        "subset_size": None if subset is None else int(subset.sum()),
        "plan_seconds": solution.timings.plan,
        "total_seconds": solution.timings.total,
        "load_seconds": solution.timings.load,
    }


def _no_rows(found: object) -> InvalidInputError:
    return InvalidInputError(
        f"rows holds, or is, a {type(found).__name__}: pass what otlp.solve_many(problems) gives"
    )
