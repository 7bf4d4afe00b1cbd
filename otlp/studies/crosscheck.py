"""Cross-check of several solvers on one problem."""

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
    """Results of several solvers on one problem.

    Attributes
    ----------
    attempts : mapping of str to Attempt
        Results by solver, in the requested order.
    complaints : tuple of str
        Contradictions; empty if all results agree.
    """

    attempts: Mapping[str, Attempt]
    complaints: tuple[str, ...]


def cross_check(
    problem: Problem, solvers: Mapping[str, Solver], tolerance: float = 1e-7
) -> CrossCheck:
    """Solve a problem with several solvers and compare their certificates.

    A lossless solution certifies that the optimum lies between its acceptance and its upper bound.
    All these intervals must have a common point; two solutions may thus differ by the larger of
    their gaps.  No certificate may have failed.

    Parameters
    ----------
    problem : Problem
    solvers : mapping of str to Solver
        Solvers by name, as returned by `otlp.solvers.line_up`.
    tolerance : float
        Tolerance for an acceptance above a bound.
    """
    attempts = {name: attempt(solver, problem) for name, solver in solvers.items()}
    solutions = [found.solution for found in attempts.values() if found.solution is not None]
    return CrossCheck(attempts, tuple(complaints(solutions, tolerance)))


def complaints(solutions: Sequence[Solution], tolerance: float) -> list[str]:
    """Return the contradictions between solutions of one problem; see `cross_check`."""
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
