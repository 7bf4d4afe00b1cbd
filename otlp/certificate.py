"""The central verifier: recompute value, marginals and bound from the plan, believe nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from otlp.checks import check_mask, own_float_errors
from otlp.distribution import Mask
from otlp.errors import InvalidInputError
from otlp.numerics.sums import l1_distance
from otlp.plan import Marginals, Plan
from otlp.problem import Problem
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee, Solution, Status
from otlp.timing import Stopwatch

GAP_TOLERANCE = 1e-6
"""A plan is called optimal if its acceptance is certified within this of the optimum."""

LOSSLESS_TOLERANCE = 1e-9
"""A plan is called lossless if its output distribution is within this of the target in L1."""

RULE_GAP = 1e-4
"""Accuracy of the bound for a plan that is not called optimal: a finer one would cost more."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver hands to the verifier.

    Attributes
    ----------
    plan : Plan or None
        The plan, or None with a `status` that says why.
    claim : Guarantee or None
        The most that the solver claims of the plan; the verifier can only lower it, and says so.
        None claims nothing: the guarantee is what can be proved.
    subset : ndarray of bool, shape (V,), or token ids, or None
        A subset H for the dual bound; where there is a plan and no subset, the verifier finds one.
    status : Status
        Why the solver stopped.
    message, details
        See `Solution`.

    Examples
    --------
    >>> import otlp
    >>> class Mine(otlp.Solver):
    ...     name = "mine"
    ...     def answer(self, problem, clock):
    ...         plan = otlp.solvers.Naive().prepare(problem)
    ...         return otlp.Answer(plan, claim=otlp.Guarantee.OPTIMAL)     # claims too much
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = Mine().solve(problem)
    >>> solution.status.name, solution.guarantee.name
    ('CERTIFICATE_FAILED', 'LOSSLESS')
    """

    plan: Plan | None
    claim: Guarantee | None = None
    subset: Mask | None = None
    status: Status = Status.SOLVED
    message: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@own_float_errors
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

    Raises
    ------
    InvalidInputError
        If the subset or the plan's marginals are not over the problem's vocabulary.

    Notes
    -----
    O(V) for selection plans, O(nnz) for plans over token sets.  A subset that is not handed in
    costs a subset selection: O(V), or a sort, for schemes that have H* in closed form; else
    iterations of `otlp.numerics.minimum_norm`, to `RULE_GAP`, and on to `GAP_TOLERANCE` only for a
    plan that may be optimal.  A plan whose acceptance is estimated is never called optimal.
    """
    subset = None if answer.subset is None else check_mask(answer.subset, problem.vocab_size)
    acceptance = marginal_error = float("nan")
    method, status, message = "no plan", answer.status, answer.message
    guarantee, interval = Guarantee.NONE, None
    upper_bound = 1.0 if subset is None else problem.dual_value(subset)
    clock.charge("bound")
    if answer.plan is not None:
        marginals = _marginals(problem, solver, answer.plan)
        acceptance = float(marginals.acceptance.sum())
        marginal_error = l1_distance(marginals.output, problem.target) + marginals.slack
        method, estimated = marginals.method, marginals.interval is not None
        interval = marginals.interval or (acceptance, acceptance)
        finite = bool(np.isfinite(acceptance + marginal_error))
        lossless = finite and marginal_error <= LOSSLESS_TOLERANCE
        clock.charge("marginals")
        if subset is None:
            optimal = answer.claim in (None, Guarantee.OPTIMAL) and lossless and not estimated
            upper_bound, subset = _bound(problem, acceptance, optimal)
            clock.charge("bound")
        proved = Guarantee.APPROXIMATE
        if lossless:
            gap = upper_bound - acceptance
            optimal = not estimated and -LOSSLESS_TOLERANCE <= gap <= GAP_TOLERANCE
            proved = Guarantee.OPTIMAL if optimal else Guarantee.LOSSLESS
        guarantee = proved if answer.claim is None else min(proved, answer.claim)
        failure = ""
        if not finite:
            failure = "the plan's marginals are not finite numbers"
        elif answer.claim is not None and proved < answer.claim:
            failure = (
                f"claimed {answer.claim.name}, proved {proved.name}: acceptance {acceptance:.12g}, "
                f"bound {upper_bound:.12g}, marginal error {marginal_error:.3g}"
            )
        if failure and status is Status.SOLVED:
            status, message = Status.CERTIFICATE_FAILED, f"{failure}. {message}".rstrip()
    clock.charge("marginals")
    return Solution(
        solver=solver,
        status=status,
        guarantee=guarantee,
        plan=answer.plan,
        acceptance=acceptance,
        upper_bound=upper_bound,
        subset=subset,
        marginal_error=marginal_error,
        marginal_method=method,
        timings=clock.read(),
        acceptance_interval=interval,
        message=message,
        details=dict(answer.details),
    )


def _marginals(problem: Problem, solver: str, plan: Plan) -> Marginals:
    """What the plan says of itself, over the problem's vocabulary."""
    marginals = plan.marginals()
    if not marginals.output.shape == marginals.acceptance.shape == problem.target.shape:
        raise InvalidInputError(
            f"{solver}: the plan's marginals have shapes {marginals.acceptance.shape} and "
            f"{marginals.output.shape}: both must be {problem.target.shape}"
        )
    return marginals


def _bound(problem: Problem, acceptance: float, optimal: bool) -> tuple[float, Mask]:
    """A dual bound: a rough one, and a fine one where that may prove the plan optimal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a bound is a bound, proved best or not
        bound, subset = subset_selection(problem, gap=RULE_GAP)
        if optimal and GAP_TOLERANCE < bound - acceptance <= RULE_GAP + GAP_TOLERANCE:
            bound, subset = subset_selection(problem, gap=GAP_TOLERANCE / 2.0)
    return bound, subset
