"""A problem of which H* is known: a conditional then solves the system of its own tuple alone.

The paper's use (Global Resolution, Eq. 7 and 8): one tuple is drafted, and one conditional needed.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy.typing as npt

from otlp.certificate import certify
from otlp.distribution import FloatArray
from otlp.drafts import IID
from otlp.plan import Marginals, Plan
from otlp.plan.slackness import SlacknessPlan
from otlp.problem import Problem
from otlp.reductions import PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Sides, split
from otlp.reductions.support import SupportInverse
from otlp.solution import Guarantee, SolveError
from otlp.solvers.solver import Solver, Stopped
from otlp.timing import Stopwatch


class SystemSolver(Solver):
    """Base class of the solvers that solve one system at a time, for i.i.d. drafts."""

    @property
    def promise(self) -> Guarantee:
        """Each system puts out what is wanted of it, however well it is solved."""
        return Guarantee.LOSSLESS

    def write(self, problem: Problem) -> Plan:
        """Find H* and divide the target; each conditional then solves what its own tuple needs.

        Where the drafts are not i.i.d. one system divides for the other: both are solved.
        """
        if not isinstance(problem.drafts, IID):
            return super().write(problem)
        small, inverse = Support().apply(problem)
        sides = self.divide(small)
        subset = Support().invert(PrimalDual(None, sides.outer.subset), inverse).dual
        systems = (PreparedSystem(self, problem, side, inverse) for side in sides)
        return SlacknessPlan(problem, subset, *systems)

    def divide(self, problem: Problem) -> Sides:
        """Find H*, and what each system has to put out."""
        return split(problem)

    @abstractmethod
    def system(self, side: Side) -> Plan:
        """Solve one system.

        Raises
        ------
        Stopped
            Where its work stops before there is a plan.
        """


class PreparedSystem(Plan):
    """One system, which is solved when a tuple needs it, and not certified.

    Parameters
    ----------
    solver : SystemSolver
    problem : Problem
    side : Side
        What the system has to do, over the tokens that can be drafted.
    inverse : SupportInverse
        The way back from these tokens.
    """

    def __init__(
        self, solver: SystemSolver, problem: Problem, side: Side, inverse: SupportInverse
    ) -> None:
        super().__init__(problem)
        self.solver, self.side, self.inverse = solver, side, inverse

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional of the plan; see `otlp.Plan.conditional`.

        Raises
        ------
        SolveError
            If the system is not solved; a fallback is not used.
        """
        return self._solved.conditional(draft_tokens)

    def marginals(self) -> Marginals:
        """Marginals of the system, which is solved for it."""
        return self._solved.marginals()

    def finished(self) -> Plan:
        """Solve the system."""
        return self._solved

    @cached_property
    def _solved(self) -> Plan:
        try:
            answer = PrimalDual(self.solver.system(self.side))
        except Stopped as stopped:
            subset = Support().invert(PrimalDual(None, self.side.subset), self.inverse).dual
            failed = stopped.answer(subset)
            raise SolveError(
                certify(self.problem, self.solver.name, failed, Stopwatch())
            ) from stopped
        plan: Plan = Support().invert(answer, self.inverse).primal
        return plan
