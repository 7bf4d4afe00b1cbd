"""A problem of which H* is known: a conditional then solves the system of its own tuple alone.

The paper's use (Global Resolution, Eq. 7 and 8): one tuple is drafted, and one conditional needed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy.typing as npt

from otlp.certificate import Answer, certify
from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, Mask
from otlp.drafts import IID
from otlp.plan import Marginals, Plan
from otlp.plan.slackness import SlacknessPlan
from otlp.problem import Problem
from otlp.reductions import PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Sides, split
from otlp.reductions.support import SupportInverse
from otlp.solution import Guarantee, SolveError
from otlp.solvers.solver import Solver, answered
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
        small, inverse = Support().reduce(problem)
        return Prepared(self, problem, self.divide(small), inverse)

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


class Prepared(Plan):
    """Conditionals that are not certified, each from its own system, which is solved when needed.

    Parameters
    ----------
    solver : SystemSolver
    problem : Problem
    sides : Sides
        H* and the divided target, over the tokens that can be drafted.
    inverse : SupportInverse
        The way back from these tokens.
    """

    def __init__(
        self, solver: SystemSolver, problem: Problem, sides: Sides, inverse: SupportInverse
    ) -> None:
        super().__init__(problem)
        self.solver, self.sides, self.inverse = solver, sides, inverse

    @cached_property
    def subset(self) -> Mask:
        """H*, shape (V,)."""
        subset: Mask
        _, subset = self._lift(PrimalDual(None, self.sides.outer.subset))
        return subset

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional of the plan; see `otlp.Plan.conditional`.

        Raises
        ------
        SolveError
            If the tuple's system is not solved; a fallback is not used.
        """
        tokens = self._check(draft_tokens)
        return (self.inner if self.subset[tokens].all() else self.outer).conditional(tokens)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Sum over both systems, which are solved for it."""
        return self.finished().marginals()

    def finished(self) -> Plan:
        """Solve both systems."""
        return SlacknessPlan(self.problem, self.subset, self.outer, self.inner)

    @cached_property
    def outer(self) -> Plan:
        """The system of the tuples that leave H*."""
        return self._solve(self.sides.outer)

    @cached_property
    def inner(self) -> Plan:
        """The system of the tuples inside H*."""
        return self._solve(self.sides.inner)

    def _solve(self, side: Side) -> Plan:
        answer = answered(lambda: Answer(self.solver.system(side)))
        if answer.plan is None:
            failed = replace(answer, subset=self.subset)
            raise SolveError(certify(self.problem, self.solver.name, failed, Stopwatch()))
        plan: Plan
        plan, _ = self._lift(PrimalDual(answer.plan))
        return plan

    def _lift(self, answer: PrimalDual[Any, Any]) -> tuple[Any, Any]:
        return Support().lift(answer, self.inverse)
