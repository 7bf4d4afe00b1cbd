"""Engines: other people's code for linear programs and maximum flows.  One file an engine.

They raise `TimeoutError` at the deadline (`otlp.timing`), `RuntimeError` when they fail and
`EngineNotFoundError` when they are not installed.
"""

from collections.abc import Callable, Mapping

from otlp.distribution import FloatArray, Mask
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines import graph_tool, ortools

__all__ = ["FLOW_ENGINES"]

FLOW_ENGINES: Mapping[str, Callable[[FlowNetwork], PrimalDual[FloatArray, Mask]]] = {
    "ortools": ortools.max_flow,
    "graph-tool": graph_tool.max_flow,
}
"""Maximum flows by the name of their engine: the flow on each arc, and the engine's minimum cut."""
