"""The OTLP as a linear program, the reference for all other solvers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability, fits
from otlp.checks import MEMORY_LIMIT, check_choice
from otlp.distribution import FloatArray
from otlp.problem import Problem, check_problem
from otlp.reductions import Chain, FullProgram, MergeTuples, PrimalDual, RelaxedProgram, Support
from otlp.reductions.transport_program import TransportProgram
from otlp.solvers.chain_solver import ChainSolver
from otlp.solvers.engines import highs
from otlp.solvers.solver import run_engine
from otlp.timing import Stopwatch

BYTES_PER_VARIABLE = 1_200.0
"""Peak memory of arrays, HiGHS and plan, in bytes per variable."""

FORMS = ("relaxed", "full")


@dataclass(frozen=True)
class LinearProgram(ChainSolver):
    """Solve the OTLP with HiGHS, as Eq. 2 or Eq. 1 of Global Resolution.

    Parameters
    ----------
    form : str
        "relaxed" is Eq. 2, merged by set of tokens: one variable for each member of each set.
        "full" is Eq. 1, with a variable for each pair of verified token and drafted tuple: up to
        (k + 1) k^n variables for n i.i.d. drafts from k tokens.
    memory_limit : int
        Memory limit of the solve in bytes.
    time_limit : float, optional
        Time limit in seconds up to HiGHS's answer; when it is reached, the status is
        `Status.TIME_LIMIT` and there is no plan.

    Raises
    ------
    InvalidInputError
        If an option is out of range; for an unknown form, the message suggests the nearest.

    Notes
    -----
    HiGHS's solution is feasible to 1e-13 of the total mass.  The plan is nevertheless lossless,
    because the replacement of rejected drafts compensates for the difference.

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
        super().__post_init__()

    def supports(self, problem: Problem) -> Capability:
        """Support problems whose linear program fits the memory limit."""
        count = self.variables(problem)
        what = f"the {self.form} linear program of {count:,.0f} variables"
        return fits(what, BYTES_PER_VARIABLE * count, self.memory_limit)

    def work(self, problem: Problem) -> float:
        """Return the number of variables to the power 1.5, the measured growth of the time."""
        return float(self.variables(problem) ** 1.5)

    def variables(self, problem: Problem) -> float:
        """Return an upper bound on the number of variables, without listing tuples."""
        check_problem(problem)
        if self.form == "relaxed":
            return problem.drafts.set_count()[1]
        kept = float(np.count_nonzero(problem.drafts.support)) + 1.0
        return kept * problem.drafts.tuple_count()

    @property
    def reduction(self) -> Chain:
        """Chain of reductions from a `Problem` to a `TransportProgram` for HiGHS."""
        if self.form == "full":
            return Chain(Support(), FullProgram(self.memory_limit))
        return Chain(Support(), MergeTuples(self.memory_limit), RelaxedProgram())

    def run(
        self, reduced: TransportProgram, clock: Stopwatch
    ) -> tuple[PrimalDual[FloatArray, FloatArray], Mapping[str, object]]:
        """Run HiGHS on the program."""
        answer, details = run_engine("HiGHS", highs.solve, reduced)
        return answer, {"engine": "highs", **details, "variables": reduced.reward.size}
