"""Engines: third-party software for linear programs and maximum flows; one file per engine.

An engine raises `TimeoutError` at the deadline (`otlp.timing`), `RuntimeError` if it fails, and
`EngineNotFoundError` if it is not installed.
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
"""Maximum-flow functions by engine name; each returns the arc flows and a minimum cut."""
