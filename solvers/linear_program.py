"""The OTLP as a linear program, as it is written: the reference for every other solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from otlp.certificate import Answer
from otlp.distribution import FloatArray, Mask
from otlp.drafts import TokenSets
from otlp.drafts.token_sets import MEMORY_LIMIT
from otlp.errors import Capability
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.reductions import MergeTuples, Relaxation, Support
from otlp.solution import Guarantee, Status
from otlp.solvers.engines import highs
from otlp.solvers.engines.highs import TransportProgram
from otlp.solvers.limits import check_choice, check_memory_limit, check_time_limit, fits
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

__all__ = ["LinearProgram"]

BYTES_PER_VARIABLE = 1_200.0
"""Peak memory of arrays, HiGHS and plan together."""

STATUSES = {"Optimal": Status.SOLVED, "Time limit reached": Status.TIME_LIMIT}


@dataclass(frozen=True)
class LinearProgram(Solver):
    """Solve the OTLP with HiGHS, as Eq. 2 or Eq. 1 of Global Resolution.

    Parameters
    ----------
    form : str
        "relaxed" is Eq. 2, merged by set of tokens: one variable for each member of each set.
        "full" is Eq. 1, the joint law of verified token and drafted tuple: up to (k + 1) k^n
        variables for n i.i.d. drafts from k tokens.
    memory_limit : int
        Bytes that the solve may need.
    time_limit : float, optional
        Seconds for HiGHS; `Status.TIME_LIMIT` and no plan when they are over.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown form, suggests the nearest.

    Notes
    -----
    HiGHS's solution is feasible to 1e-13 of the total mass.  The plan is lossless all the same:
    what the solution misses by goes to the replacement of rejected drafts.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed = otlp.solve(problem, "linear-program")
    >>> full = otlp.solve(problem, "linear-program", form="full")
    >>> round(relaxed.acceptance, 6), round(full.acceptance, 6)
    (0.85, 0.85)
    """

    form: str = "relaxed"
    memory_limit: int = MEMORY_LIMIT
    time_limit: float | None = None
    name: ClassVar[str] = "linear-program"

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        check_memory_limit(self.memory_limit)
        check_time_limit(self.time_limit)

    def supports(self, problem: Problem) -> Capability:
        """Accept problems whose linear program fits the memory limit."""
        count = self._variables(problem)
        what = f"the {self.form} linear program of {count:,.0f} variables"
        return fits(what, BYTES_PER_VARIABLE * count, self.memory_limit)

    def work(self, problem: Problem) -> float:
        """Return the number of variables, to the power that the time was seen to grow with."""
        return float(self._variables(problem) ** 1.5)

    def _variables(self, problem: Problem) -> float:
        if self.form == "relaxed":
            return problem.drafts.set_count()[1]
        kept = float(np.count_nonzero(problem.drafts.support)) + 1.0
        return kept * problem.drafts.tuple_count()

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Reduce, run HiGHS, and read plan and subset off its solution and prices."""
        support = Support()
        small, to_problem = support.apply(problem)
        clock.lap("reduce")
        program, recover = FORMS[self.form](small, self.memory_limit)
        clock.lap("build")
        result = highs.solve(program, self.time_limit)
        clock.lap("solve")
        status = STATUSES.get(result.status, Status.NUMERICAL_ERROR)
        details = {
            "engine": "highs",
            "method": result.method,
            "iterations": result.iterations,
            "variables": program.reward.size,
            "highs_status": result.status,
        }
        if status is not Status.SOLVED:
            message = f"HiGHS: {result.status}."
            return Answer(None, Guarantee.NONE, None, status, message, details)
        subset = support.lift_subset(_price_subset(small, result.row_price), to_problem)
        plan = support.invert(recover(result.x), to_problem)
        clock.lap("recover")
        return Answer(plan, subset=subset, details=details)


Form = tuple[TransportProgram, Callable[[FloatArray], Plan]]


def _relaxed_form(problem: Problem, memory_limit: int) -> Form:
    """Eq. 2 over token sets, and the way from S to a plan."""
    reduction = MergeTuples(memory_limit)
    relaxed, inverse = reduction.apply(problem)
    groups = relaxed.groups
    program = TransportProgram(
        rows=groups.members,
        columns=groups.rows,
        reward=np.ones(groups.members.size),
        row_mass=relaxed.target,
        column_mass=groups.mass,
        exact=False,
    )
    return program, lambda flow: reduction.invert(flow, inverse)


def _full_form(problem: Problem, memory_limit: int) -> Form:
    """Eq. 1 over all pairs of a token and a tuple, and the way from C to a plan."""
    reduction = Relaxation(memory_limit)
    relaxed, inverse = reduction.apply(problem)
    groups, size = relaxed.groups, problem.vocab_size
    pairs = TokenSets(
        members=np.tile(np.arange(size), len(groups)),
        offsets=size * np.arange(len(groups) + 1),
        mass=groups.mass,
    )
    reward = np.zeros((len(groups), size))
    reward[groups.rows, groups.members] = 1.0
    program = TransportProgram(
        rows=pairs.members,
        columns=pairs.rows,
        reward=reward.ravel(),
        row_mass=relaxed.target,
        column_mass=pairs.mass,
        exact=True,
    )
    return program, lambda joint: reduction.invert(joint, replace(inverse, groups=pairs))


FORMS = {"relaxed": _relaxed_form, "full": _full_form}


def _price_subset(problem: Problem, prices: FloatArray) -> Mask:
    """Subset H that the dual prices y of the tokens stand for (Global Resolution, Appendix E).

    At a vertex y is 0 or 1, up to a constant in the full form, and H = {y = 1}.  The dual value
    of y is the mean over levels in [0, 1] of the dual value of {y > level}, so the best level is
    never worse than y, at a vertex or not.
    """
    above = np.clip(prices - prices.min(), 0.0, 1.0)
    levels = np.unique(np.round(above, 6))
    subsets = [above > level for level in (levels[:-1] + levels[1:]) / 2.0]
    subsets.append(np.zeros(prices.size, dtype=bool))
    return min(subsets, key=problem.dual_value)
