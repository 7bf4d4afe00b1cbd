"""Base class of the maximum-flow solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.capability import Capability, fits
from otlp.checks import MEMORY_LIMIT, check_choice
from otlp.distribution import FloatArray, Mask
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.chain_solver import ChainSolver
from otlp.solvers.engines import FLOW_ENGINES
from otlp.solvers.solver import run_engine

BYTES_PER_ARC = 200.0
"""Peak memory of reductions, engine and plan in bytes per arc, measured at V = 1000, n = 2."""


@dataclass(frozen=True)
class FlowSolver(ChainSolver):
    """Base class of the maximum-flow solvers; the subclasses document the options."""

    engine: str = "ortools"
    memory_limit: int = MEMORY_LIMIT
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, FLOW_ENGINES)
        super().__post_init__()

    def work(self, problem: Problem) -> float:
        """Return the number of arcs of the network of all token sets."""
        check_problem(problem)
        return problem.vocab_size + sum(problem.drafts.set_count())

    def supports(self, problem: Problem) -> Capability:
        """Support problems whose networks fit the memory limit."""
        arcs = self.work(problem)
        return fits(f"a network of {arcs:,.0f} arcs", BYTES_PER_ARC * arcs, self.memory_limit)

    def flow(
        self, network: FlowNetwork, what: str = "maximum flow"
    ) -> PrimalDual[FloatArray, Mask]:
        """Compute a maximum flow and a minimum cut; `what` names the network in messages.

        Raises
        ------
        Stopped
            With `Status.TIME_LIMIT`, or `Status.NUMERICAL_ERROR` if the engine failed.
        EngineNotFoundError
            If the engine is not installed.
        """
        if network.groups == 0:
            return PrimalDual(np.zeros(network.capacities.size))
        return run_engine(f"{self.engine}, {what}", FLOW_ENGINES[self.engine], network)
