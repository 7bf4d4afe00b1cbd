from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.max_flow import MaxFlow
from tests.instances import DEGENERATE


def large(k: int, n: int, concentration: float = 0.1) -> otlp.Problem:
    p, q = np.random.default_rng(k * n).dirichlet(np.full(k, concentration), 2)
    return otlp.Problem(p, otlp.IID(q, n))


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


def test_time_limit_is_a_status_and_the_next_solve_works() -> None:
    problem = large(60, 3)
    late = MaxFlow(time_limit=1e-3).solve(problem)
    assert late.status is otlp.Status.TIME_LIMIT
    assert late.plan is None and late.guarantee is otlp.Guarantee.NONE
    assert "stopped after 0.001 s" in late.message
    assert MaxFlow(time_limit=60.0).solve(problem).guarantee is otlp.Guarantee.OPTIMAL


def test_an_infinite_time_limit_is_none() -> None:
    solution = MaxFlow(time_limit=float("inf")).solve(DEGENERATE["one draft"])
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
