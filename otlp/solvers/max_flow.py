"""Maximum flow from tokens to sets of drafted tokens: exact for every draft scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from otlp.distribution import FloatArray, Mask
from otlp.problem import Problem, check_problem
from otlp.reductions import Chain, MergeTuples, NetworkReduction, PrimalDual, Support
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.flow_solver import FlowSolver
from otlp.timing import Stopwatch


@dataclass(frozen=True)
class MaxFlow(FlowSolver):
    """Solve the relaxed OTLP, merged by set of tokens, as a maximum flow.

    Global Resolution, section 5.2 and Appendix F.  The chain is support, merging, network,
    engine, and all of it back; the engine's minimum cut is the proof of optimality.

    Parameters
    ----------
    engine : str
        "ortools", or "graph-tool", the paper's own, which PyPI does not have.
    memory_limit : int
        Bytes that the solve may need.
    time_limit : float, optional
        Seconds up to the engine's answer; `Status.TIME_LIMIT` and no plan when they are over.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown engine, suggests the nearest.

    Notes
    -----
    O(V + nnz) memory for nnz members of all token sets, binom(k, 1) + ... + n binom(k, n) for n
    i.i.d. drafts from k tokens; the time of push-relabel is about linear in that here.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Explicit([[0, 1], [0, 2]], [0.6, 0.4])
    >>> solution = otlp.solve(otlp.Problem([0.1, 0.6, 0.3], drafts), "max-flow")
    >>> round(solution.acceptance, 6), solution.subset.tolist()
    (1.0, [False, False, False])
    """

    name: ClassVar[str] = "max-flow"

    def work(self, problem: Problem) -> float:
        """Return the number of arcs."""
        check_problem(problem)
        sets, members = problem.drafts.set_count()
        return problem.vocab_size + sets + members

    @property
    def reduction(self) -> Chain:
        """From a `Problem` to its network, and back."""
        return Chain(Support(), MergeTuples(self.memory_limit), NetworkReduction())

    def run(
        self, reduced: FlowNetwork, clock: Stopwatch
    ) -> tuple[PrimalDual[FloatArray, Mask], Mapping[str, object]]:
        """Run the engine on the network."""
        details = {"engine": self.engine, "sets": reduced.groups, "arcs": reduced.tails.size}
        return self.flow(reduced), details
