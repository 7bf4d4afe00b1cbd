"""Engines: other people's code for linear programs and maximum flows.  One file an engine.

A max-flow engine is a function from a `FlowNetwork` to the flow on every arc.  It raises
`TimeoutError` at the deadline (`otlp.timing`), `RuntimeError` when it fails and
`EngineNotFoundError` when it is not installed.
"""

from collections.abc import Callable, Mapping

from otlp.distribution import FloatArray
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines import graph_tool, ortools

__all__ = ["FLOW_ENGINES"]

FLOW_ENGINES: Mapping[str, Callable[[FlowNetwork], FloatArray]] = {
    "ortools": ortools.max_flow,
    "graph-tool": graph_tool.max_flow,
}
