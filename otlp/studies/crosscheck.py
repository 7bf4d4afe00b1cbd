"""Cross-checking: several solvers on one problem, and what is wrong between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otlp.certificate import LOSSLESS_TOLERANCE
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, Status
from otlp.solvers import with_time_limit

__all__ = ["Verdict", "cross_check"]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What solvers say of one problem.

    Attributes
    ----------
    solutions : mapping of str to Solution
        By solver, in the order asked for.
    skipped : mapping of str to str
        Solvers that do not take the problem, with their reason.
    complaints : tuple of str
        What does not fit together; empty if all agree.
    """

    solutions: Mapping[str, Solution]
    skipped: Mapping[str, str]
    complaints: tuple[str, ...]


def cross_check(
    problem: Problem,
    solvers: Sequence[str],
    tolerance: float = 1e-7,
    time_limit: float = 60.0,
) -> Verdict:
    """Solve a problem with several solvers and compare their certificates.

    Acceptances certified optimal must agree within `tolerance`; no acceptance may exceed the
    smallest upper bound of all; no certificate may have failed; and a plan called lossless must
    follow the target.

    Parameters
    ----------
    problem : Problem
    solvers : sequence of str
        Names from `otlp.solvers.SOLVERS`.
    tolerance : float
        Largest difference in acceptance that counts as agreement.
    time_limit : float
        Seconds a solver, for those that have such an option.
    """
    solutions: dict[str, Solution] = {}
    skipped: dict[str, str] = {}
    for name in solvers:
        solver = with_time_limit(name, time_limit)
        capability = solver.supports(problem)
        if capability:
            solutions[name] = solver.solve(problem)
        else:
            skipped[name] = capability.reason
    return Verdict(solutions, skipped, tuple(_complaints(solutions, tolerance)))


def _complaints(solutions: Mapping[str, Solution], tolerance: float) -> list[str]:
    found = [s for s in solutions.values() if s.plan is not None]
    complaints = [
        f"{s.solver}: {s.message}" for s in found if s.status is Status.CERTIFICATE_FAILED
    ]
    if not found:
        return complaints
    bound = min(s.upper_bound for s in found)
    optimal = [s for s in found if s.guarantee is Guarantee.OPTIMAL]
    for solution in found:
        excess = solution.acceptance - bound
        lossless = solution.marginal_error <= LOSSLESS_TOLERANCE
        if lossless and excess > tolerance:
            complaints.append(
                f"{solution.solver} accepts {solution.acceptance:.9f}, above the bound {bound:.9f}"
            )
    if optimal:
        best, worst = (pick(optimal, key=lambda s: s.acceptance) for pick in (max, min))
        if best.acceptance - worst.acceptance > tolerance:
            complaints.append(
                f"{best.solver} accepts {best.acceptance:.9f} and {worst.solver} "
                f"{worst.acceptance:.9f}: both call it optimal"
            )
    return complaints
