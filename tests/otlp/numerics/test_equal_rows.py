from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.numerics.equal_rows import equal_rows


@given(st.integers(0, 20), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_every_place_once_with_its_row(count: int, width: int, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(-1, 2, (count, width))
    groups = list(equal_rows(rows))
    assert sorted(place for _, places in groups for place in places.tolist()) == list(range(count))
    for row, places in groups:
        assert (rows[places] == row).all() and (np.diff(places) > 0).all()
    distinct = [tuple(row.tolist()) for row, _ in groups]
    assert distinct == sorted(set(map(tuple, rows.tolist())))


@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_any_integers(dtype: type[np.integer]) -> None:
    ((row, places),) = equal_rows(np.ones((3, 2), dtype=dtype))
    assert row.tolist() == [1, 1] and places.tolist() == [0, 1, 2]
