"""The most likely tokens equal those of a stable sort, for all ties."""

from __future__ import annotations

import numpy as np
import pytest

from otlp.numerics.top_tokens import top_tokens


@pytest.mark.parametrize("values", [2, 5, 10**6])
def test_as_sorted(values: int) -> None:
    rng = np.random.default_rng(values)
    for size in (1, 3, 64, 65, 200, 5000):
        for count in (0, 1, 2, 31, 39):
            q = rng.integers(0, values, size) * 1.0
            expected = np.argsort(-q, kind="stable")[:count]
            assert top_tokens(q, count).tolist() == expected.tolist()
