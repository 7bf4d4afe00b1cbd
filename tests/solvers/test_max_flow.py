from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.engines import graph_tool
from otlp.solvers.max_flow import MaxFlow
from tests.instances import DEGENERATE


def large(k: int, n: int, concentration: float = 0.1) -> otlp.Problem:
    p, q = np.random.default_rng(k * n).dirichlet(np.full(k, concentration), 2)
    return otlp.Problem(p, otlp.IID(q, n))


@pytest.mark.parametrize(("k", "n"), [(100, 2), (40, 3), (12, 8)])
def test_reaches_the_optimum_on_large_networks(k: int, n: int, engine: str) -> None:
    for concentration in (0.1, 3.0):
        problem = large(k, n, concentration)
        alpha, _ = subset_selection(problem)
        solution = MaxFlow(engine).solve(problem)
        assert solution.guarantee is otlp.Guarantee.OPTIMAL
        assert abs(solution.acceptance - alpha) <= 1e-10
        assert abs(solution.gap) <= 1e-10
        assert solution.marginal_error <= 1e-12


def test_time_limit_is_a_status_and_the_next_solve_works(engine: str) -> None:
    problem = large(60, 3)
    late = MaxFlow(engine, time_limit=1e-3).solve(problem)
    assert late.status is otlp.Status.TIME_LIMIT
    assert late.plan is None and late.guarantee is otlp.Guarantee.NONE
    assert "stopped after 0.001 s" in late.message
    assert MaxFlow(engine, time_limit=60.0).solve(problem).guarantee is otlp.Guarantee.OPTIMAL


def test_an_infinite_time_limit_is_none(engine: str) -> None:
    solution = MaxFlow(engine, time_limit=float("inf")).solve(DEGENERATE["one draft"])
    assert solution.guarantee is otlp.Guarantee.OPTIMAL


@pytest.mark.parametrize("named", ["/nonexistent/python", "/bin/false"])
def test_absent_graph_tool_names_the_install_command(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(graph_tool.INTERPRETER_VARIABLE, named)
    with pytest.raises(otlp.errors.EngineNotFoundError) as caught:
        MaxFlow("graph-tool").solve(DEGENERATE["one draft"])
    for words in ("apt-get install python3-graph-tool", "conda-forge", named):
        assert words in str(caught.value)
