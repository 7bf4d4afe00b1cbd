"""Sorting orders of numbers of either sign."""

import numpy as np
import pytest

from otlp.numerics.ascending import FEW, ascending


@pytest.mark.parametrize("size", [1, 1000, FEW, FEW + 1, 2**17, 150_000])
def test_numbers_of_either_sign_are_sorted_as_numpy_sorts_them(size):
    rng = np.random.default_rng(size)
    normal = rng.standard_normal(size)
    for values in (
        normal,
        1e-300 * normal,
        np.exp(50.0 * normal) * rng.choice([-1.0, 1.0], size),
        np.where(normal < -1.0, -np.inf, np.where(normal > 1.0, np.inf, normal)),
        rng.integers(-3, 4, size) * 1.0,
        1.0 + 1e-15 * rng.integers(0, 50, size),
        -1.0 - 1e-15 * rng.integers(0, 50, size),
        np.where(normal < 0.0, -0.0, 0.0),
    ):
        given = values.copy()
        order = ascending(values)
        assert (values == given).all()
        assert (order == np.argsort(values, kind="stable")).all()
