"""What every verification rule reaches on one pair of distributions under one draft scheme.

Rules are solvers by name, each plan with its exact acceptance.  Beside them stand two that are no
rules: `OPTIMUM`, what the best rule for the scheme reaches, and `BOUND`, the information-theoretic
upper bound.  A combination that is not valid is recorded with the reason.  Rows and settings are
gone over in `otlp.studies.sweep`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from otlp._solve import optimal_acceptance
from otlp.distribution import FloatArray
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, OTLPError
from otlp.numerics.coupled_acceptance import coupled_acceptance
from otlp.problem import Problem
from otlp.solvers import with_time_limit
from otlp.studies.attempt import attempt
from otlp.studies.information_bound import information_bound

OPTIMUM = "optimum"
"""The acceptance of the best rule for the scheme."""

BOUND = "information bound"
"""`information_bound` with all tokens inside: sum_i min(p_i, P(i is drafted))."""

RULES = ("naive", "recursive-rejection", "k-seq", "hub", "greedy")
"""The published rules of a single step."""

COUPLED = "coupled"
"""Equality with the n best candidates of a draft that shares the target's noise."""

LIKELIEST = "likeliest"
"""Equality with the draft's n likeliest tokens, as in engines."""

EQUALITIES = (COUPLED, LIKELIEST)
"""No rules of a scheme: they take the target's own draw, and are the same beside every scheme."""


@dataclass(frozen=True)
class RuleResult:
    """The acceptance of one rule.

    Attributes
    ----------
    rule : str
        A solver's name, one of `EQUALITIES`, `OPTIMUM` or `BOUND`.
    acceptance : float
        Exact, as certified; NaN if the rule does not apply.
    guarantee : str
        Name of the member of `otlp.Guarantee` that the plan was certified for; empty for what is
        no plan.
    reason : str
        Why there is no acceptance, or how far the optimum is proved only; else empty.
    first_draft : float or None
        Probability that the verified token is the first draft, of rules whose plans say so:
        ``hub`` and ``recursive-rejection``.  For two drafts the rest of the acceptance is the
        probability that it is the second and not the first.
    acceptance_interval : tuple of float, or None
        Where the acceptance is estimated, or known within a bound: the ends of its interval.
    """

    rule: str
    acceptance: float
    guarantee: str = ""
    reason: str = ""
    first_draft: float | None = None
    acceptance_interval: tuple[float, float] | None = None


def measure_rules(
    pair: tuple[FloatArray, FloatArray],
    scheme: str,
    n: int,
    rules: Sequence[str] = RULES,
    time_limit: float = 10.0,
) -> list[RuleResult]:
    """Measure the acceptance of rules, the optimum and the bound.

    Parameters
    ----------
    pair : (p, q)
        Target and draft distribution, each of shape (V,).
    scheme : str
        Name in `otlp.drafts.by_name.SCHEMES`.
    n : int
        Number of drafts.
    rules : sequence of str
        Names in `otlp.solvers.SOLVERS`, or of `EQUALITIES`.
    time_limit : float
        Seconds for each solver that has such an option.

    Notes
    -----
    The cost of the solvers: O(V log V) each for those with a closed form.
    """
    try:
        problem = Problem(pair[0], make_scheme(scheme, pair[1], n))
    except InvalidInputError as error:  # equality needs no drafts of the scheme
        found = no_results(rules, str(error))
        return [_equality(one.rule, *pair, n) if one.rule in EQUALITIES else one for one in found]
    measured = (
        _equality(rule, *pair, n) if rule in EQUALITIES else _measure(problem, rule, time_limit)
        for rule in rules
    )
    return [*measured, *_references(problem)]


def no_results(rules: Sequence[str], reason: str) -> list[RuleResult]:
    """Say of every rule why there is no acceptance."""
    return [RuleResult(rule, math.nan, reason=reason) for rule in (*rules, OPTIMUM, BOUND)]


def _measure(problem: Problem, rule: str, limit: float) -> RuleResult:
    found = attempt(with_time_limit(rule, limit), problem)
    if found.solution is None:
        return RuleResult(rule, math.nan, reason=found.reason)
    solution = found.solution
    by_first = getattr(solution.plan, "first_draft", None)
    first = None if by_first is None else float(by_first().sum())
    ends = solution.acceptance_interval
    interval = ends if ends and ends[0] < ends[1] else None
    said = solution.guarantee.name, found.reason
    return RuleResult(rule, solution.acceptance, *said, first, interval)


def _equality(rule: str, p: FloatArray, q: FloatArray, n: int) -> RuleResult:
    if rule == LIKELIEST:
        top = np.argsort(-q, kind="stable")[:n]
        found = float(p[top[q[top] > 0.0]].sum())  # a token with q = 0 is never drafted
    else:
        found, bound = coupled_acceptance(p, q, n)
        if bound > 1e-12:
            return RuleResult(rule, found, acceptance_interval=(found, min(1.0, found + bound)))
    return RuleResult(rule, found)


def _references(problem: Problem) -> Iterator[RuleResult]:
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        try:
            best, doubt = optimal_acceptance(problem), "".join(str(w.message) for w in doubts)
        except OTLPError as error:
            best, doubt = math.nan, str(error)
    yield RuleResult(OPTIMUM, best, reason=doubt)
    yield RuleResult(BOUND, information_bound(problem))
