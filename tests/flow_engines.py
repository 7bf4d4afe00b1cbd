"""The max-flow engines to test; graph-tool is skipped by name where it is not installed."""

from __future__ import annotations

import pytest

import otlp
from otlp.solvers.max_flow import MaxFlow
from tests.instances import DEGENERATE


def has_graph_tool() -> bool:
    try:
        MaxFlow("graph-tool").solve(DEGENERATE["one draft"])
    except otlp.errors.EngineNotFoundError:
        return False
    return True


ENGINES = (
    "ortools",
    pytest.param(
        "graph-tool",
        marks=pytest.mark.skipif(not has_graph_tool(), reason="graph-tool is not installed"),
    ),
)
