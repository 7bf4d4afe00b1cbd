"""Maximum flow in two networks: one for the tuples inside H*, one for those that leave it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from otlp.certificate import Answer, certify
from otlp.distribution import FloatArray
from otlp.drafts import IID
from otlp.drafts.token_sets import set_count
from otlp.errors import Capability
from otlp.plan import Plan
from otlp.plan.slackness import FlowSystem, SlacknessPlan
from otlp.problem import Problem
from otlp.reductions import NetworkReduction, Support
from otlp.reductions.complementary_slackness import (
    Split,
    best_subset,
    inner_flow,
    inner_system,
    listed_systems,
    outer_flow,
    outer_system,
    split,
    split_by_flow,
)
from otlp.reductions.relaxation import RelaxedOTLP
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee, SolveError
from otlp.solvers.flow_solver import BYTES_PER_ARC, FlowError, FlowSolver
from otlp.solvers.limits import fits
from otlp.timing import Stopwatch

__all__ = ["Slackness"]


@dataclass(frozen=True)
class Slackness(FlowSolver):
    """Solve the inner and the outer system as maximum flows of their own.

    Global Resolution, section 5.3 and Theorem 5.1.  Exact, for any scheme whose tuples can be
    listed.  For i.i.d. drafts the outer masses are fixed beforehand as in section 6.1, so that
    neither network needs the other; for other schemes the outer flow fixes them.

    Parameters
    ----------
    engine : str
        "ortools", or "graph-tool" (the paper's own; not on PyPI).
    memory_limit : int
        Bytes that the solve may need.
    time_limit : float, optional
        Seconds for the engine in each network; `Status.TIME_LIMIT` and no plan when they end.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown engine, suggests the nearest.

    Notes
    -----
    The outer network has a group a set of tokens outside H*, the inner one a set inside: together
    far fewer than `max-flow` has, unless H* is nearly empty or nearly full.  `lazy_plan` solves
    a network when the first tuple comes that needs it.

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
        """Accept problems whose networks fit the memory limit; O(V log V)."""
        arcs = self.work(problem)
        return fits(f"networks of {arcs:,.0f} arcs", BYTES_PER_ARC * arcs, self.memory_limit)

    def work(self, problem: Problem) -> float:
        """Return the number of arcs of both networks, or a bound on it."""
        if not isinstance(problem.drafts, IID):
            return problem.vocab_size + sum(problem.drafts.set_count())
        subset = best_subset(problem)
        drafted = problem.drafts.support
        sides = (np.count_nonzero(side & drafted) for side in (subset, ~subset))
        return problem.vocab_size + sum(sum(set_count(int(size), problem.n)) for size in sides)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Solve both networks."""
        support = Support()
        small, to_problem = support.apply(problem)
        details: dict[str, object] = {"engine": self.engine}
        plan = self._plan(small, clock, details)
        subset = support.lift_subset(plan.subset, to_problem)
        details["subset_size"] = int(subset.sum())
        try:
            _ = plan.outer, plan.inner
        except SolveError as error:
            failed = error.solution
            return Answer(None, Guarantee.NONE, subset, failed.status, failed.message, details)
        lifted = support.invert(plan, to_problem)
        clock.lap("recover")
        return Answer(lifted, subset=subset, details=details)

    def lazy_plan(self, problem: Problem) -> Plan:
        """Prepare the plan; each slice then solves only the network that its tuple needs.

        Parameters
        ----------
        problem : Problem

        Returns
        -------
        Plan
            Not certified. `conditional` and `sample` raise `SolveError` if the engine fails.

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        """
        self.require(problem)
        small, to_problem = Support().apply(problem)
        return Support().invert(self._plan(small, Stopwatch(), {}), to_problem)

    def _plan(
        self, problem: Problem, clock: Stopwatch, details: dict[str, object]
    ) -> SlacknessPlan:
        if not isinstance(problem.drafts, IID):
            return self._listed_plan(problem, clock, details)
        parts = split(problem)
        clock.lap("reduce")

        def outer() -> FlowSystem:
            system = outer_system(parts, self.memory_limit)
            details["outer_sets"] = len(system.groups)
            return outer_flow(parts, system, self._flow("outer", problem, system, clock))

        def inner() -> FlowSystem:
            system = inner_system(parts, self.memory_limit)
            details["inner_sets"] = len(system.groups)
            return inner_flow(parts, system, self._flow("inner", problem, system, clock))

        return SlacknessPlan(problem, parts.subset, outer, inner)

    def _listed_plan(
        self, problem: Problem, clock: Stopwatch, details: dict[str, object]
    ) -> SlacknessPlan:
        """Without closed outer residuals: a slice inside H* needs the outer flow too."""
        _, subset = subset_selection(problem)
        clock.lap("reduce")
        systems = listed_systems(problem, subset, self.memory_limit)
        details["outer_sets"] = len(systems.outer.groups)
        details["inner_sets"] = len(systems.inner.groups)

        @cache
        def solved() -> tuple[Split, FlowSystem]:
            flow = self._flow("outer", problem, systems.outer, clock)
            parts = split_by_flow(problem, subset, systems.outer, flow)
            return parts, outer_flow(parts, systems.outer, flow)

        def inner() -> FlowSystem:
            flow = self._flow("inner", problem, systems.inner, clock)
            return inner_flow(solved()[0], systems.inner, flow)

        return SlacknessPlan(problem, subset, lambda: solved()[1], inner)

    def _flow(
        self, which: str, problem: Problem, system: RelaxedOTLP, clock: Stopwatch
    ) -> FloatArray:
        """Solve one network."""
        if len(system.groups) == 0:
            return np.empty(0)
        network, inverse = NetworkReduction().apply(system)
        clock.lap("build")
        try:
            flows = self.flow(network)
        except FlowError as error:
            message = f"{self.engine}, {which} system: {error}"
            failed = Answer(None, Guarantee.NONE, None, error.status, message)
            raise SolveError(certify(problem, self.name, failed, clock)) from error
        clock.lap("solve")
        flow = NetworkReduction().invert(flows, inverse)
        return flow
