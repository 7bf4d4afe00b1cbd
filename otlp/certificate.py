"""The verifier: recomputes acceptance, marginals and bound of a solution from its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from otlp.checks import check_mask, own_float_errors
from otlp.distribution import Mask
from otlp.errors import InvalidInputError
from otlp.numerics.sums import l1_distance
from otlp.plan import Marginals, Plan
from otlp.problem import Problem
from otlp.reductions.subset_selection import find_subset
from otlp.solution import Guarantee, Solution, Status
from otlp.timing import Stopwatch

GAP_TOLERANCE = 1e-6
"""Largest optimality gap of a plan that is called optimal."""

LOSSLESS_TOLERANCE = 1e-9
"""Largest L1 distance from the target of the output of a plan that is called lossless."""

RULE_GAP = 1e-4
"""Accuracy of the bound for a plan that is not called optimal; a finer bound would cost more."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a solver, before verification.

    Attributes
    ----------
    plan : Plan or None
        The plan, or None with the reason in `status`.
    claim : Guarantee or None
        Guarantee that the solver claims for the plan; the verifier can only lower the claim, and
        reports that it did.  With None, the guarantee is the strongest one that can be proved.
    subset : ndarray of bool, shape (V,), or token ids, or None
        A subset H for the dual bound.  If None and there is a plan, the verifier computes one.
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
    """Recompute the value of an answer and lower a claim that does not hold.

    Parameters
    ----------
    problem : Problem
    solver : str
        Name of the solver.
    answer : Answer
        Answer of the solver.
    clock : Stopwatch
        Stopwatch, running since the solver started; the verifier's time is also charged to it.

    Returns
    -------
    Solution
        Its status is `CERTIFICATE_FAILED` if the solver claimed more than can be proved.

    Raises
    ------
    InvalidInputError
        If the plan is for another problem, or the subset or the plan's marginals do not match the
        problem's vocabulary.

    Notes
    -----
    O(V) for selection plans, O(nnz) for plans over token sets.  If the answer has no subset, a
    subset selection adds O(V) or a sort for schemes with a closed form of H*; for other schemes it
    adds iterations of `otlp.numerics.random_weights` or `otlp.numerics.minimum_norm` to accuracy
    `RULE_GAP`, and to `GAP_TOLERANCE` only if the plan may be optimal.  A plan with an estimated
    acceptance is never called optimal.
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
        finite = isfinite(acceptance + marginal_error)
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
            failure = "the plan's marginals must be finite"
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
    """Return the marginals of the plan after a check of its problem and of their shapes."""
    if plan.problem is not problem and plan.problem != problem:
        raise InvalidInputError(
            f"{solver}: the plan must be for {problem!r}, got a plan for another problem, with "
            "another target or other drafts"
        )
    marginals = plan.marginals()
    if not marginals.output.shape == marginals.acceptance.shape == problem.target.shape:
        raise InvalidInputError(
            f"{solver}: the plan's marginals must have shape {problem.target.shape}, got "
            f"{marginals.acceptance.shape} and {marginals.output.shape}"
        )
    return marginals


def _bound(problem: Problem, acceptance: float, optimal: bool) -> tuple[float, Mask]:
    """Compute a rough dual bound, then a fine one if it can prove the plan optimal."""
    subset, _ = find_subset(problem, gap=RULE_GAP)  # Any bound is valid, also a rough one.
    bound = problem.dual_value(subset)
    if optimal and GAP_TOLERANCE < bound - acceptance <= RULE_GAP + GAP_TOLERANCE:
        subset, _ = find_subset(problem, gap=GAP_TOLERANCE / 2.0)
        bound = problem.dual_value(subset)
    return bound, subset
