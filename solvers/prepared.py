"""A problem of which H* is known: a slice then solves the system of its own tuple alone.

The paper's use (Global Resolution, Eq. 7 and 8): one tuple is drafted, and one slice is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy.typing as npt

from otlp.certificate import Answer, certify
from otlp.distribution import FloatArray, Mask
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.reductions import PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Split, split
from otlp.reductions.support import SupportInverse
from otlp.solution import Guarantee, SolveError
from otlp.solvers.solver import Solver, Stopped
from otlp.timing import Stopwatch

__all__ = ["Prepared", "SystemSolver"]


class SystemSolver(Solver):
    """Base class of the solvers that solve one system at a time, for i.i.d. drafts."""

    def prepare(self, problem: Problem) -> Prepared:
        """Find H* and divide the target; each slice then solves what its own tuple needs.

        Parameters
        ----------
        problem : Problem
            With i.i.d. drafts.

        Returns
        -------
        Prepared

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no, or the drafts are not i.i.d.
        """
        self.supports(problem).require(self.name)
        small, inverse = Support().apply(problem)
        return Prepared(self, problem, self.divide(small), inverse)

    def divide(self, problem: Problem) -> Split:
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


@dataclass(frozen=True, eq=False)
class Prepared:
    """Slices that are not certified, each from its own system, which is solved when needed.

    Attributes
    ----------
    solver : SystemSolver
    problem : Problem
    parts : Split
        H* and the divided target, over the tokens that can be drafted.
    inverse : SupportInverse
        The way back from these tokens.
    """

    solver: SystemSolver
    problem: Problem
    parts: Split
    inverse: SupportInverse

    @cached_property
    def subset(self) -> Mask:
        """H*, shape (V,)."""
        subset: Mask = self._lift(PrimalDual(None, self.parts.subset)).dual
        return subset

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan; see `otlp.Plan.conditional`.

        Raises
        ------
        SolveError
            If the tuple's system is not solved; a fallback is not used.
        """
        tokens = self.problem.check_draft_tokens(draft_tokens)
        return (self.inner if self.subset[tokens].all() else self.outer).conditional(tokens)

    @cached_property
    def outer(self) -> Plan:
        """The system of the tuples that leave H*."""
        return self._solve(self.parts.outer)

    @cached_property
    def inner(self) -> Plan:
        """The system of the tuples inside H*."""
        return self._solve(self.parts.inner)

    def _solve(self, side: Side) -> Plan:
        try:
            plan: Plan = self._lift(PrimalDual(self.solver.system(side))).primal
        except Stopped as stopped:
            answer = Answer(None, Guarantee.NONE, self.subset, stopped.status, stopped.message)
            raise SolveError(
                certify(self.problem, self.solver.name, answer, Stopwatch())
            ) from stopped
        return plan

    def _lift(self, answer: PrimalDual) -> PrimalDual:
        return Support().invert(answer, self.inverse)
