from __future__ import annotations

import pytest

import otlp
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.max_flow import MaxFlow
from tests.instances import DEGENERATE, large


@pytest.mark.parametrize(("k", "n"), [(100, 2), (40, 3), (12, 8)])
def test_reaches_the_optimum_on_large_networks(k: int, n: int) -> None:
    for concentration in (0.1, 3.0):
        problem = large(k, n, concentration)
        alpha, _ = subset_selection(problem)
        solution = MaxFlow().solve(problem)
        assert solution.guarantee is otlp.Guarantee.OPTIMAL
        assert abs(solution.acceptance - alpha) <= 1e-10
        assert abs(solution.gap) <= 1e-10
        assert solution.marginal_error <= 1e-12


def test_an_infinite_time_limit_is_none() -> None:
    solution = MaxFlow(time_limit=float("inf")).solve(DEGENERATE["one draft"])
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
