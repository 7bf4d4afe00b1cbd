from __future__ import annotations

import math
from typing import Any

import pytest

import otlp
from otlp.errors import InvalidInputError
from otlp.parallel.solve_many import Row
from otlp.parallel.table import COLUMNS, columns

PROBLEM = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
OTHER = otlp.Problem([0.1, 0.6, 0.3], otlp.Greedy([0.5, 0.3, 0.2], n=2))


def mixed() -> list[Row]:
    """Return two solved problems, one refused, and one that stops without a plan."""
    late = otlp.solve(PROBLEM, "linear-program", time_limit=1e-9, throw=False)
    assert late.plan is None
    return [*otlp.solve_many([PROBLEM, OTHER, PROBLEM], "martingale"), Row(3, late)]


def test_columns_are_the_certificates() -> None:
    rows = mixed()
    table = columns(iter(rows))
    assert list(table) == list(COLUMNS)
    assert table["row"] == [0, 1, 2, 3]
    assert table["status"] == ["SOLVED", "UnsupportedProblemError", "SOLVED", "TIME_LIMIT"]
    assert table["guarantee"] == ["OPTIMAL", "", "OPTIMAL", "NONE"]
    assert "i.i.d." in table["message"][1] and "HiGHS" in table["message"][3]
    for name in ("acceptance", "upper_bound", "gap", "marginal_error"):
        for row, value in zip(rows, table[name], strict=True):
            if row.solution is None:
                assert math.isnan(value)
            else:
                wanted = getattr(row.solution, name)
                assert value == wanted or (math.isnan(value) and math.isnan(wanted))
    assert table["subset_size"][:3] == [1, None, 1]
    for part in ("plan", "total", "load"):
        assert table[f"{part}_seconds"][0] == getattr(rows[0].solution.timings, part)
    for name, kind in COLUMNS.items():
        assert all(isinstance(value, kind) or value is None for value in table[name])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_made_of_the_columns(library: str) -> None:
    table = columns(mixed())
    frame = pytest.importorskip(library).DataFrame(table)
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 4
    assert frame["row"].to_list() == [0, 1, 2, 3]
    assert frame["message"].to_list() == table["message"]
    assert frame["acceptance"].to_list()[0] == pytest.approx(0.85)


@pytest.mark.parametrize("bad", [None, 3, "rows", PROBLEM, [PROBLEM], [None]])
def test_what_are_no_rows_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="solve_many"):
        columns(bad)
