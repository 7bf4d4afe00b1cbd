"""Selection of the fastest exact solver for a draft scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.capability import Capability
from otlp.certificate import Answer
from otlp.drafts import Explicit
from otlp.problem import Problem
from otlp.solvers.greedy import GreedySolver
from otlp.solvers.hub import HubSolver
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.orderings import Orderings
from otlp.solvers.random_ranks import RandomRanks
from otlp.solvers.random_weights import RandomWeights
from otlp.solvers.solver import Solver
from otlp.solvers.speculative_sampling import SpeculativeSampling
from otlp.timing import Stopwatch


@dataclass(frozen=True)
class Auto(Solver):
    """Solve with the fastest exact solver for the scheme; the solution contains its name.

    The selected solver is a closed form if one exists (`speculative-sampling` for a single draft,
    `martingale` for i.i.d. drafts, `greedy`, `hub`); `random-ranks` for drafts without
    replacement; `random-weights` for independent drafts; `max-flow` for explicit tuples if the
    network fits its memory limit; otherwise `orderings`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> otlp.solvers.Auto().resolve(problem).name
    'martingale'
    >>> otlp.solve(problem).solver
    'martingale'
    """

    name: ClassVar[str] = "auto"

    def resolve(self, problem: Problem) -> Solver:
        """Return the fastest exact solver for the scheme."""
        closed_forms = SpeculativeSampling(), Martingale(), GreedySolver(), HubSolver()
        for solver in (*closed_forms, RandomRanks(), RandomWeights()):
            if solver.supports(problem):
                return solver
        flow = MaxFlow()
        if isinstance(problem.drafts, Explicit) and flow.supports(problem):
            return flow
        return Orderings()

    def supports(self, problem: Problem) -> Capability:
        """Return whether the selected solver supports the problem."""
        return self.resolve(problem).supports(problem)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the answer of the selected solver."""
        return self.resolve(problem).answer(problem, clock)
