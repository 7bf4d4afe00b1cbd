"""Maximum flow from tokens to sets of drafted tokens: exact for every draft scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from otlp.distribution import FloatArray, Mask
from otlp.reductions import Chain, MergeTuples, NetworkReduction, PrimalDual, Support
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.flow_solver import FlowSolver
from otlp.timing import Stopwatch


@dataclass(frozen=True)
class MaxFlow(FlowSolver):
    """Solve the relaxed OTLP, merged by set of tokens, as a maximum flow.

    Global Resolution, section 5.2 and Appendix F.  The reductions are support, merging of tuples
    and network; the engine's minimum cut proves optimality.

    Parameters
    ----------
    engine : str
        "ortools", or "graph-tool", the engine of the paper, which is not on PyPI.
    memory_limit : int
        Memory limit of the solve in bytes.
    time_limit : float, optional
        Time limit in seconds up to the engine's answer; when it is reached, the status is
        `Status.TIME_LIMIT` and there is no plan.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown engine, the message suggests the nearest.

    Notes
    -----
    O(V + nnz) memory for nnz members of all token sets, binom(k, 1) + ... + n binom(k, n) for n
    i.i.d. drafts from k tokens; the time of push-relabel is about linear in nnz in practice.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Explicit([[0, 1], [0, 2]], [0.6, 0.4])
    >>> solution = otlp.solve(otlp.Problem([0.1, 0.6, 0.3], drafts), "max-flow")
    >>> round(solution.acceptance, 6), solution.subset.tolist()
    (1.0, [False, False, False])
    """

    name: ClassVar[str] = "max-flow"

    @property
    def reduction(self) -> Chain:
        """Chain of reductions from a `Problem` to a `FlowNetwork`."""
        return Chain(Support(), MergeTuples(self.memory_limit), NetworkReduction())

    def run(
        self, reduced: FlowNetwork, clock: Stopwatch
    ) -> tuple[PrimalDual[FloatArray, Mask], Mapping[str, object]]:
        """Run the engine on the network."""
        details = {"engine": self.engine, "sets": reduced.groups, "arcs": reduced.tails.size}
        return self.flow(reduced), details
