"""Rows of a sweep as a dictionary of columns, for data frames."""

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
"""Names and types of the columns."""

MISSING = {int: None, float: math.nan, str: ""}


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Collect the certificates of many rows in columns; plans are not kept.

    The result can be passed to ``pandas.DataFrame`` and ``polars.DataFrame``.

    Parameters
    ----------
    rows : iterable of Row
        Rows, such as ``otlp.solve_many(problems, plans=False)``.

    Returns
    -------
    dict of list
        The columns `COLUMNS`, with one entry per row, in the order of the rows.  After an error,
        ``row``, ``status`` and ``message`` describe the error; other entries are NaN in columns of
        floats, "" in columns of text, and None in ``subset_size``.  ``plan_seconds`` is the time of
        the solver, ``total_seconds`` includes the certificate, and ``load_seconds``, the time of
        loading and compiling, is included in neither.

    Raises
    ------
    InvalidInputError
        If `rows` is not an iterable of `Row`.

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
        raise _not_rows(rows) from None
    table: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in each:
        known = _entries(row)
        for name, kind in COLUMNS.items():
            table[name].append(known.get(name, MISSING[kind]))
    return table


def _entries(row: Row) -> dict[str, Any]:
    if not isinstance(row, Row):
        raise _not_rows(row)
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


def _not_rows(found: object) -> InvalidInputError:
    return InvalidInputError(
        "rows must be an iterable of otlp.Row, such as otlp.solve_many(problems), got "
        f"{type(found).__name__}"
    )
