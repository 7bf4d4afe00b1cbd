"""A few rows represent all rows: every position in a passage is equally likely."""

from __future__ import annotations

import numpy as np
import pytest

from otlp.data.spread_rows import choice_of_rows, spread_rows
from otlp.errors import InvalidInputError


@pytest.mark.parametrize("wanted", [10, 20, 40])
@pytest.mark.parametrize("passages", [8, 10, 13, 16, 55])
def test_the_mean_of_few_rows_is_near_that_of_all(passages: int, wanted: int) -> None:
    """Rows at the start of a passage are easy, as after a prompt; even spacing chose only these."""
    easy = np.tile(np.r_[np.full(4, 0.9), np.linspace(0.2, 0.6, 28)], passages)
    chosen = spread_rows(easy.size, wanted)
    half = 1.96 * easy.std() / np.sqrt(wanted)
    assert abs(easy[chosen].mean() - easy.mean()) <= half


def test_all_rows_once_where_there_are_no_more() -> None:
    assert spread_rows(7, 7) == spread_rows(7, 100) == list(range(7))
    rows = spread_rows(1000, 999)
    assert len(set(rows)) == 999 and rows == sorted(rows)
    assert choice_of_rows(7, 7) == "all 7 rows"


def test_nothing_to_choose_from_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no rows"):
        spread_rows(0, 3)
