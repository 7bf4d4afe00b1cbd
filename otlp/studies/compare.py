"""Acceptance of verification rules on one pair of distributions under one draft scheme.

Rules are solvers by name, and each plan has its exact acceptance.  Two references are added:
`OPTIMUM`, the acceptance of the best rule for the scheme, and `BOUND`, the information-theoretic
upper bound.  An invalid combination is recorded with the reason.  `otlp.studies.sweep` loops over
rows and settings.
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
"""Name of the acceptance of the best rule for the scheme."""

BOUND = "information bound"
"""Name of `information_bound` with all tokens in the subset: sum_i min(p_i, P(i is drafted))."""

RULES = ("naive", "recursive-rejection", "k-seq", "hub", "greedy")
"""Published rules for a single step."""

COUPLED = "coupled"
"""Sampled verification of the n best candidates of a draft that shares the target's noise."""

LIKELIEST = "likeliest"
"""Sampled verification of the draft's n most likely tokens, as in inference engines."""

EQUALITIES = (COUPLED, LIKELIEST)
"""Rules that output the target's own draw; their acceptance does not depend on the scheme."""


@dataclass(frozen=True)
class RuleResult:
    """The acceptance of one rule.

    Attributes
    ----------
    rule : str
        A solver's name, one of `EQUALITIES`, `OPTIMUM` or `BOUND`.
    acceptance : float
        Exact certified acceptance; NaN if the rule does not apply.
    guarantee : str
        Name of the certified member of `otlp.Guarantee`; empty for `EQUALITIES`, `OPTIMUM` and
        `BOUND`.
    reason : str
        Reason why there is no acceptance or why the optimum is not proved exactly; else empty.
    first_draft : float or None
        Probability that the verified token is the first draft, for rules whose plans contain this
        probability: ``hub`` and ``recursive-rejection``.  For two drafts the rest of the acceptance
        is the probability that the verified token is the second draft and not the first.
    acceptance_interval : tuple of float, or None
        Interval of the acceptance if it is estimated or known only within a bound.
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
    """Compute the acceptance of rules, the optimum and the bound.

    Parameters
    ----------
    pair : (p, q)
        Target and draft distribution, each of shape (V,).
    scheme : str
        Name in `otlp.drafts.by_name.SCHEMES`.
    n : int
        Number of drafts.
    rules : sequence of str
        Names in `otlp.solvers.SOLVERS` or in `EQUALITIES`.
    time_limit : float
        Seconds per solve, for solvers with a time limit.

    Notes
    -----
    The cost is that of the solvers: O(V log V) for each solver with a closed form.
    """
    try:
        problem = Problem(pair[0], make_scheme(scheme, pair[1], n))
    except InvalidInputError as error:  # EQUALITIES do not need the scheme
        found = no_results(rules, str(error))
        return [_equality(one.rule, *pair, n) if one.rule in EQUALITIES else one for one in found]
    measured = (
        _equality(rule, *pair, n) if rule in EQUALITIES else _measure(problem, rule, time_limit)
        for rule in rules
    )
    return [*measured, *_references(problem)]


def no_results(rules: Sequence[str], reason: str) -> list[RuleResult]:
    """Return results without acceptance, all with the same reason."""
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
    labels = solution.guarantee.name, found.reason
    return RuleResult(rule, solution.acceptance, *labels, first, interval)


def _equality(rule: str, p: FloatArray, q: FloatArray, n: int) -> RuleResult:
    if rule == LIKELIEST:
        top = np.argsort(-q, kind="stable")[:n]
        found = float(p[top[q[top] > 0.0]].sum())  # tokens with q = 0 are never drafted
    else:
        found, bound = coupled_acceptance(p, q, n)
        if bound > 1e-12:
            return RuleResult(rule, found, acceptance_interval=(found, min(1.0, found + bound)))
    return RuleResult(rule, found)


def _references(problem: Problem) -> Iterator[RuleResult]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            best, reason = optimal_acceptance(problem), "".join(str(w.message) for w in caught)
        except OTLPError as error:
            best, reason = math.nan, str(error)
    yield RuleResult(OPTIMUM, best, reason=reason)
    yield RuleResult(BOUND, information_bound(problem))
