"""What the solvers that find maximum flows share: OR-Tools, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray
from otlp.errors import Capability, fits
from otlp.problem import Problem
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.chain_solver import ChainSolver
from otlp.solvers.engines import ortools
from otlp.solvers.solver import engine_errors

BYTES_PER_ARC = 200.0
"""Peak memory of the reductions, the engine and the plan together, measured at (1000, 2)."""


@dataclass(frozen=True)
class FlowSolver(ChainSolver):
    """Base class of the solvers that run OR-Tools; they describe the options."""

    memory_limit: int = MEMORY_LIMIT
    time_limit: float | None = None

    def supports(self, problem: Problem) -> Capability:
        """Accept problems whose networks fit the memory limit."""
        arcs = self.work(problem)
        return fits(f"a network of {arcs:,.0f} arcs", BYTES_PER_ARC * arcs, self.memory_limit)

    def flow(self, network: FlowNetwork, what: str = "maximum flow") -> FloatArray:
        """Flow on every arc, shape (arcs,); `what` tells one of two networks in a message.

        Raises
        ------
        Stopped
            With `Status.TIME_LIMIT`, or `Status.NUMERICAL_ERROR` where the engine failed.
        """
        with engine_errors(f"ortools, {what}"):
            return ortools.max_flow(network)
