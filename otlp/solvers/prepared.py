"""Plans for i.i.d. drafts that solve the inner or outer system only when a tuple needs it.

This is the use case of the paper (Global Resolution, Eq. 7 and 8): one tuple is drafted, and only
its conditional is needed.
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
from otlp.solvers.solver import Solver, catch_stopped
from otlp.timing import Stopwatch


class SystemSolver(Solver):
    """Base class of solvers that can solve one system at a time for i.i.d. drafts."""

    @property
    def promise(self) -> Guarantee:
        """Each system has its required output distribution, however accurately it is solved."""
        return Guarantee.LOSSLESS

    def write(self, problem: Problem) -> Plan:
        """Compute H* and split the target; a conditional later solves the system of its tuple.

        If the drafts are not i.i.d., one system depends on the other, so solve both.
        """
        if not isinstance(problem.drafts, IID):
            return super().write(problem)
        small, inverse = Support().reduce(problem)
        return Prepared(self, problem, self.divide(small), inverse)

    def divide(self, problem: Problem) -> Sides:
        """Compute H* and the output that each system must have."""
        return split(problem)

    @abstractmethod
    def system(self, side: Side) -> Plan:
        """Solve one system.

        Raises
        ------
        Stopped
            If the solver stops before it has a plan.
        """


class Prepared(Plan):
    """Plan without a certificate whose conditionals solve the system of their tuple when needed.

    Parameters
    ----------
    solver : SystemSolver
    problem : Problem
    sides : Sides
        H* and the split target, over the tokens that can be drafted.
    inverse : SupportInverse
        Inverse of the restriction to these tokens.
    """

    def __init__(
        self, solver: SystemSolver, problem: Problem, sides: Sides, inverse: SupportInverse
    ) -> None:
        super().__init__(problem)
        self.solver, self.sides, self.inverse = solver, sides, inverse

    @cached_property
    def subset(self) -> Mask:
        """Subset H*, shape (V,)."""
        subset: Mask
        _, subset = self._lift(PrimalDual(None, self.sides.outer.subset))
        return subset

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional distribution; see `otlp.Plan.conditional`.

        Raises
        ------
        SolveError
            If the solver finds no plan of the tuple's system; a fallback is not used.
        """
        tokens = self._check(draft_tokens)
        return (self.inner if self.subset[tokens].all() else self.outer).conditional(tokens)

    @own_float_errors
    def marginals(self) -> Marginals:
        """Solve both systems and return the sum of their marginals."""
        return self.finished().marginals()

    def finished(self) -> Plan:
        """Solve both systems."""
        return SlacknessPlan(self.problem, self.subset, self.outer, self.inner)

    @cached_property
    def outer(self) -> Plan:
        """Plan of the outer system, for tuples with a token outside H*."""
        return self._solve(self.sides.outer)

    @cached_property
    def inner(self) -> Plan:
        """Plan of the inner system, for tuples inside H*."""
        return self._solve(self.sides.inner)

    def _solve(self, side: Side) -> Plan:
        answer = catch_stopped(lambda: Answer(self.solver.system(side)))
        if answer.plan is None:
            failed = replace(answer, subset=self.subset)
            raise SolveError(certify(self.problem, self.solver.name, failed, Stopwatch()))
        plan: Plan
        plan, _ = self._lift(PrimalDual(answer.plan))
        return plan

    def _lift(self, answer: PrimalDual[Any, Any]) -> tuple[Any, Any]:
        return Support().lift(answer, self.inverse)
