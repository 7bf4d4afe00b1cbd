"""The max-flow engines to test; graph-tool is skipped by name where it is not installed."""

from __future__ import annotations

import pytest

from otlp.errors import EngineNotFoundError
from otlp.solvers.max_flow import MaxFlow
from tests.instances import DEGENERATE


@pytest.fixture(scope="session", params=["ortools", "graph-tool"])
def engine(request: pytest.FixtureRequest) -> str:
    try:
        MaxFlow(request.param).solve(DEGENERATE["one draft"])
    except EngineNotFoundError:
        pytest.skip("graph-tool is not installed")
    return str(request.param)
