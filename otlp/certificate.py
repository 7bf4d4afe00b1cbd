"""The central verifier: recompute value, marginals and bound from the plan, believe nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from otlp.distribution import Mask
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, Status
from otlp.timing import Stopwatch

__all__ = ["GAP_TOLERANCE", "LOSSLESS_TOLERANCE", "Answer", "certify"]

GAP_TOLERANCE = 1e-6
"""A plan is called optimal if its acceptance is certified within this of the optimum."""

LOSSLESS_TOLERANCE = 1e-9
"""A plan is called lossless if its output law is within this of the target in L1."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver hands to the verifier.

    Attributes
    ----------
    plan : Plan or None
        The plan, or None with a `status` that says why.
    claim : Guarantee
        The most that the solver claims of the plan; the verifier can only lower it.
    subset : ndarray of bool, shape (V,), or None
        A subset H for the dual bound; None stands for the trivial bound 1.
    status : Status
        Why the solver stopped.
    message, details
        See `Solution`.
    """

    plan: Plan | None
    claim: Guarantee = Guarantee.OPTIMAL
    subset: Mask | None = None
    status: Status = Status.SOLVED
    message: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


def certify(problem: Problem, solver: str, answer: Answer, clock: Stopwatch) -> Solution:
    """Recompute what the answer is worth and lower every claim that does not hold.

    Parameters
    ----------
    problem : Problem
    solver : str
        Name of the solver.
    answer : Answer
        What it found.
    clock : Stopwatch
        Running since the solver started; the verifier's own time is charged to it.

    Returns
    -------
    Solution
        With status `CERTIFICATE_FAILED` where the solver claimed more than can be proved.

    Notes
    -----
    O(V) for selection plans, O(nnz) for plans over token sets.
    """
    upper_bound = 1.0 if answer.subset is None else problem.dual_value(answer.subset)
    acceptance = marginal_error = float("nan")
    method, status, message = "no plan", answer.status, answer.message
    guarantee = Guarantee.NONE
    if answer.plan is not None:
        marginals = answer.plan.marginals()
        acceptance = float(marginals.acceptance.sum())
        marginal_error = float(np.abs(marginals.output - problem.target).sum()) + marginals.slack
        method = marginals.method
        proved = Guarantee.APPROXIMATE
        if marginal_error <= LOSSLESS_TOLERANCE:
            gap = upper_bound - acceptance
            optimal = -LOSSLESS_TOLERANCE <= gap <= GAP_TOLERANCE
            proved = Guarantee.OPTIMAL if optimal else Guarantee.LOSSLESS
        guarantee = min(proved, answer.claim)
        if proved < answer.claim and status is Status.SOLVED:
            status = Status.CERTIFICATE_FAILED
            message = (
                f"claimed {answer.claim.name}, proved {proved.name}: acceptance {acceptance:.12g}, "
                f"bound {upper_bound:.12g}, marginal error {marginal_error:.3g}. {message}"
            ).rstrip()
    clock.lap("verify")
    return Solution(
        solver=solver,
        status=status,
        guarantee=guarantee,
        plan=answer.plan,
        acceptance=acceptance,
        upper_bound=upper_bound,
        subset=answer.subset,
        marginal_error=marginal_error,
        marginal_method=method,
        timings=clock.read(),
        message=message,
        details=answer.details,
    )
