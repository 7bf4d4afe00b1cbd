"""Maximum flows in two networks, for the tuples inside and outside the optimal subset H*.

The inner network has the tuples whose tokens are all in H*, the outer network all other tuples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from otlp.capability import Capability
from otlp.distribution import FloatArray, Mask
from otlp.plan import Plan, SetPlan
from otlp.problem import Problem, check_problem
from otlp.reductions import Chain, ComplementarySlackness, PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Systems, relaxed_side, system_sizes
from otlp.reductions.flow_network import network_of
from otlp.solvers.flow_solver import BYTES_PER_ARC, FlowSolver
from otlp.solvers.prepared import SystemSolver
from otlp.timing import Stopwatch, deadline


@dataclass(frozen=True)
class Slackness(FlowSolver, SystemSolver):
    """Solve the inner and the outer system as two maximum flows.

    Global Resolution, section 5.3 and Theorem 5.1.  Exact for any scheme whose tuples can be
    listed.  The networks share the outer masses: the accepted masses of the tokens outside H*.  For
    i.i.d. drafts these masses are fixed beforehand as in section 6.1, so the networks are
    independent; for other schemes the outer flow determines them.

    Parameters
    ----------
    engine : str
        "ortools", or "graph-tool", the engine of the paper, which is not on PyPI.
    memory_limit : int
        Memory limit of the solve in bytes.
    time_limit : float, optional
        Time limit in seconds for the solve up to the flows of the engine; when it is reached, the
        status is `Status.TIME_LIMIT` and there is no plan.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown engine, the message suggests the nearest name.

    Notes
    -----
    The outer network has one group per set of tokens outside H*, and the inner network has one
    group per set inside H*.  Together these are far fewer groups than in the network of `max-flow`,
    unless H* is nearly empty or nearly full.  For i.i.d. drafts
    ``prepare(problem).conditional(draft_tokens)`` solves only the network that contains the tuple.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem, "slackness")
    >>> round(solution.acceptance, 6), solution.guarantee.name
    (0.85, 'OPTIMAL')
    """

    name: ClassVar[str] = "slackness"

    def supports(self, problem: Problem) -> Capability:
        """Support problems whose networks fit the memory limit."""
        # The network of all sets bounds the size of both networks and does not need H*.
        fitting = BYTES_PER_ARC * super().work(problem) <= self.memory_limit
        return Capability(True) if fitting else super().supports(problem)

    def work(self, problem: Problem) -> float:
        """Return the number of arcs of both networks, or an upper bound."""
        check_problem(problem)
        return problem.vocab_size + sum(system_sizes(problem))

    @property
    def reduction(self) -> Chain:
        """Chain of reductions from a `Problem` to its two systems."""
        return Chain(Support(), ComplementarySlackness(self.memory_limit))

    def run(
        self, reduced: Systems, clock: Stopwatch
    ) -> tuple[PrimalDual[tuple[FloatArray, FloatArray], Mask], Mapping[str, object]]:
        """Run the engine on both networks."""
        details = {
            "engine": self.engine,
            "outer_sets": reduced.outer.groups.mass.size,
            "inner_sets": reduced.inner.groups.mass.size,
        }
        outer, inner = network_of(reduced.outer), network_of(reduced.inner)
        clock.charge("build")
        flows = (
            self.flow(outer, "outer system").primal[outer.middle],
            self.flow(inner, "inner system").primal[inner.middle],
        )
        return PrimalDual(flows), details

    def system(self, side: Side) -> Plan:
        """Solve one network; see `SystemSolver`."""
        with deadline(self.time_limit):
            system = relaxed_side(side, self.memory_limit)
            network = network_of(system)
            flow = self.flow(network, f"{side.name} system").primal[network.middle]
            return SetPlan(side.problem, system.groups, flow, side.wanted)
