"""User-defined plans and a solver: lossless, lossy, and with a wrong claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

import otlp
from otlp import Guarantee
from otlp.capability import Capability
from otlp.certificate import Answer
from otlp.distribution import FloatArray
from otlp.plan import Plan, TablePlan
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

PROBLEM = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))


def table(problem: otlp.Problem, slices: FloatArray) -> TablePlan:
    return TablePlan(problem, problem.drafts.enumerate_tuples(), slices)


def ignore_drafts(problem: otlp.Problem = PROBLEM) -> TablePlan:
    """Return a lossless plan: the target, independent of the drafts."""
    return table(problem, np.tile(problem.target, (len(problem.drafts.enumerate_tuples().mass), 1)))


def keep_first(problem: otlp.Problem = PROBLEM) -> TablePlan:
    """Return a lossy plan: always the first draft, so that the acceptance is 1."""
    first = problem.drafts.enumerate_tuples().tokens[:, 0]
    return table(problem, np.eye(problem.vocab_size)[first])


class OwnPlan(Plan):
    """A user-defined plan with only `conditional`."""

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        return self.problem.target


@dataclass(frozen=True)
class Boaster(Solver):
    """A solver that claims that the plan of the naive rule is optimal."""

    name: ClassVar[str] = "boaster"

    def supports(self, problem: otlp.Problem) -> Capability:
        return Capability(problem.n > 1, "it needs two drafts: use max-flow")

    def answer(self, problem: otlp.Problem, clock: Stopwatch) -> Answer:
        return Answer(otlp.solvers.Naive().prepare(problem), Guarantee.OPTIMAL)
