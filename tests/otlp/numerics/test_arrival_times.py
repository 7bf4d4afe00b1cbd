"""Quadrature over the time of the n-th arrival: exponentials of every rate, to 1e-12."""

from math import lgamma

import numpy as np
import pytest

from otlp.numerics.arrival_times import arrival_times
from otlp.numerics.lanes import LANES


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20, 64])
@pytest.mark.parametrize("slowest", [1.0 + 1e-15, 0.9, 0.5, 0.2, 0.06, 0.04, 1e-3, 1e-12])
def test_every_rate_between_the_slowest_and_one(n, slowest):
    times, weights = arrival_times(n, slowest)
    assert times.shape == weights.shape and times.shape[1] == LANES
    assert (np.diff(times.ravel()) > 0.0).all() and (weights > 0.0).all()
    check_rates(n, slowest, times, weights)


def check_rates(n, slowest, times, weights):
    for rate in np.geomspace(slowest, 1.0, 9):
        density = np.exp(n * np.log(rate) + (n - 1) * np.log(times) - rate * times - lgamma(n))
        assert (weights * density).sum() == pytest.approx(1.0, abs=1e-12)


def test_few_nodes_where_no_token_has_much_and_a_logarithm_more_where_one_has_all():
    assert arrival_times(4, 0.9)[0].size == LANES
    assert arrival_times(4, 0.5)[0].size == 2 * LANES
    assert arrival_times(4, 1e-300)[0].size < 500 * LANES
