"""Cross-checking: several solvers on one problem, and what is wrong between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otlp.certificate import LOSSLESS_TOLERANCE
from otlp.problem import Problem
from otlp.solution import Solution, Status
from otlp.solvers.solver import Solver
from otlp.studies.attempt import Attempt, attempt


@dataclass(frozen=True, eq=False)
class CrossCheck:
    """What solvers say of one problem.

    Attributes
    ----------
    attempts : mapping of str to Attempt
        By solver, in the order asked for.
    complaints : tuple of str
        What does not fit together; empty if all agree.
    """

    attempts: Mapping[str, Attempt]
    complaints: tuple[str, ...]


def cross_check(
    problem: Problem, solvers: Mapping[str, Solver], tolerance: float = 1e-7
) -> CrossCheck:
    """Solve a problem with several solvers and compare what they certify.

    A lossless answer certifies that the optimum lies between its acceptance and its upper bound:
    these intervals must have a common point, so that two answers may differ by as much as the
    worse one's gap.  And no certificate may have failed.

    Parameters
    ----------
    problem : Problem
    solvers : mapping of str to Solver
        By what each is called, as `otlp.solvers.line_up` gives them.
    tolerance : float
        By how much more an acceptance may exceed a bound.
    """
    attempts = {name: attempt(solver, problem) for name, solver in solvers.items()}
    solutions = [found.solution for found in attempts.values() if found.solution is not None]
    return CrossCheck(attempts, tuple(complaints(solutions, tolerance)))


def complaints(solutions: Sequence[Solution], tolerance: float) -> list[str]:
    """What does not fit together between solutions of one problem; see `cross_check`."""
    found = [solution for solution in solutions if solution.plan is not None]
    wrong = [f"{s.solver}: {s.message}" for s in found if s.status is Status.CERTIFICATE_FAILED]
    lowest = min(found, key=lambda s: s.upper_bound, default=None)
    for solution in found:
        assert lowest is not None and solution.acceptance_interval is not None
        excess = solution.acceptance_interval[0] - solution.marginal_error - lowest.upper_bound
        if solution.marginal_error <= LOSSLESS_TOLERANCE and excess > tolerance:
            wrong.append(
                f"{solution.solver} accepts {solution.acceptance:.9f}, above the bound "
                f"{lowest.upper_bound:.9f} that {lowest.solver} certifies"
            )
    return wrong
