"""Maximum flow in two networks: one for the tuples inside H*, one for those that leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.distribution import FloatArray
from otlp.plan import Plan
from otlp.problem import Problem, check_problem
from otlp.reductions import Chain, ComplementarySlackness, NetworkReduction, PrimalDual, Support
from otlp.reductions.complementary_slackness import (
    Side,
    Systems,
    flow_system,
    relaxed_side,
    system_sizes,
)
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.relaxation import RelaxedOTLP
from otlp.solvers.flow_solver import FlowSolver
from otlp.solvers.prepared import SystemSolver
from otlp.timing import Stopwatch, deadline


@dataclass(frozen=True)
class Slackness(FlowSolver, SystemSolver):
    """Solve the inner and the outer system as maximum flows of their own.

    Global Resolution, section 5.3 and Theorem 5.1.  Exact, for any scheme whose tuples can be
    listed.  For i.i.d. drafts the outer masses are fixed beforehand as in section 6.1, so that
    neither network needs the other; for other schemes the outer flow fixes them.

    Parameters
    ----------
    engine : str
        "ortools", or "graph-tool", the paper's own, which PyPI does not have.
    memory_limit : int
        Bytes that the solve may need.
    time_limit : float, optional
        Seconds up to the engine's answers; `Status.TIME_LIMIT` and no plan when they are over.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown engine, suggests the nearest.

    Notes
    -----
    The outer network has a group a set of tokens outside H*, the inner one a set inside: together
    far fewer than `max-flow` has, unless H* is nearly empty or nearly full.  For i.i.d. drafts
    ``prepare(problem).conditional(draft_tokens)`` solves only the network that the tuple needs.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem, "slackness")
    >>> round(solution.acceptance, 6), solution.guarantee.name
    (0.85, 'OPTIMAL')
    """

    name: ClassVar[str] = "slackness"

    def work(self, problem: Problem) -> float:
        """Return the number of arcs of both networks, or a bound on it."""
        check_problem(problem)
        return problem.vocab_size + sum(system_sizes(problem))

    @property
    def reduction(self) -> Chain:
        """From a `Problem` to its two systems, and back."""
        return Chain(Support(), ComplementarySlackness(self.memory_limit))

    def run(self, reduced: Systems, clock: Stopwatch) -> tuple[PrimalDual, Mapping[str, object]]:
        """Run the engine on both networks."""
        details = {
            "engine": self.engine,
            "outer_sets": len(reduced.outer.groups),
            "inner_sets": len(reduced.inner.groups),
        }
        outer, inner = map(_network, reduced)
        clock.lap("build")
        flows = self._flow("outer", outer), self._flow("inner", inner)
        return PrimalDual(flows), details

    def system(self, side: Side) -> Plan:
        """Solve one network; see `SystemSolver`."""
        with deadline(self.time_limit):
            system = relaxed_side(side, self.memory_limit)
            return flow_system(side, system, self._flow(side.name, _network(system)))

    def _flow(self, name: str, network: FlowNetwork) -> FloatArray:
        """S of one system, shape (nnz,)."""
        if network.groups == 0:
            return np.empty(0)
        flow: FloatArray = self.flow(network, f"{name} system").primal[network.middle]
        return flow


def _network(system: RelaxedOTLP) -> FlowNetwork:
    return NetworkReduction().apply(system)[0]
