"""Acceptance of every verification rule under every draft scheme, on the same distributions.

Rules are solvers by name, each plan with its exact acceptance.  Beside them stand two that are no
rules: `OPTIMUM`, what the best rule for the scheme reaches, and `BOUND`, the information-theoretic
upper bound.  A combination that is not valid is recorded with the reason.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np

from otlp._solve import optimal_acceptance
from otlp.distribution import FloatArray, IntArray
from otlp.drafts.by_name import SCHEMES, make_scheme
from otlp.errors import InvalidInputError, OTLPError
from otlp.problem import Problem
from otlp.solvers import make_solver, with_time_limit
from otlp.studies.attempt import attempt
from otlp.studies.bounds import upper_bound
from otlp.studies.points import SweepPoint, SweepSetting
from otlp.sweeps.workers import in_order

OPTIMUM = "optimum"
"""The acceptance of the best rule for the scheme."""

BOUND = "information bound"
"""sum_i min(p_i, P(i is drafted)): SpecTr's Lemma 3 with all tokens in its subset."""

Where = tuple[int, str, int]
"""A combination: row, scheme and n."""
RULES = ("naive", "recursive-rejection", "k-seq", "hub", "greedy")
"""The published rules of a single step."""


@dataclass(frozen=True)
class RuleResult:
    """The acceptance of one rule on one row.

    Attributes
    ----------
    row : int
        Number of the pair of distributions, as given.
    scheme : str
        Name in `SCHEMES`.
    n : int
        Number of drafts.
    rule : str
        A solver's name, `OPTIMUM` or `BOUND`.
    acceptance : float
        Exact, as certified; NaN if the rule does not apply.
    guarantee : str
        Name of the member of `otlp.Guarantee` that the plan was certified for; empty for what is
        no plan.
    reason : str
        Why there is no acceptance, or how far the optimum is proved only; else empty.
    """

    row: int
    scheme: str
    n: int
    rule: str
    acceptance: float
    guarantee: str = ""
    reason: str = ""


def compare(
    pairs: Iterable[tuple[FloatArray, FloatArray]],
    n: Sequence[int] = (1, 2, 3, 4),
    schemes: Sequence[str] = tuple(SCHEMES),
    rules: Sequence[str] = RULES,
    *,
    time_limit: float = 10.0,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str], None] = lambda label: None,
) -> Iterator[RuleResult]:
    """Measure the acceptance of every rule under every scheme.

    Parameters
    ----------
    pairs : iterable of (p, q)
        Target and draft distributions, each of shape (V,).
    n : sequence of int
        Numbers of drafts.
    schemes : sequence of str
        Names in `SCHEMES`.
    rules : sequence of str
        Names in `otlp.solvers.SOLVERS`; the optimum and the information bound are measured too.
    time_limit : float
        Seconds for each solver that has such an option.
    jobs : int, optional
    executor : concurrent.futures.Executor, optional
        Processes that work at the same time, and where in place of this machine: see
        `otlp.sweeps.workers.in_order`.  The results are the same to the bit, but for those that a
        time limit cut.
    progress : callable
        Called with a label after each combination of pair, scheme and n.

    Yields
    ------
    RuleResult

    Raises
    ------
    InvalidInputError, UnknownSolverError
        If a scheme or a rule does not exist.

    Notes
    -----
    The cost of the solvers: O(V log V) each for those with a closed form.
    """
    check_names(schemes, rules)
    tasks = (
        ((row, name, count), pair)
        for row, pair in enumerate(pairs)
        for name in schemes
        for count in n
    )
    asked, given = itertools.tee(tasks)
    work = partial(measure_rules, rules=tuple(rules), time_limit=time_limit)
    for found, (where, _) in zip(
        in_order(work, asked, jobs, executor=executor), given, strict=True
    ):
        progress(f"{where[1]}, n = {where[2]}")
        if isinstance(found, OTLPError):  # its worker died
            found = no_results(where, rules, str(found))
        yield from found


def check_names(schemes: Iterable[str], rules: Iterable[str]) -> None:
    """Refuse a scheme or a rule that does not exist.

    Raises
    ------
    InvalidInputError, UnknownSolverError
    """
    for name in schemes:
        if not isinstance(name, str) or name not in SCHEMES:
            make_scheme(name, np.ones(1), 1)
    for rule in rules:
        make_solver(rule)


def measure_rules(
    task: tuple[Where, tuple[FloatArray, FloatArray]], rules: Sequence[str], time_limit: float
) -> list[RuleResult]:
    """Measure the rules, the optimum and the bound at one combination; see `compare`."""
    where, (target, draft) = task
    try:
        problem = Problem(target, make_scheme(where[1], draft, where[2]))
    except InvalidInputError as error:
        return no_results(where, rules, str(error))
    return [
        *(_measure(where, problem, rule, time_limit) for rule in rules),
        *_references(where, problem),
    ]


def no_results(where: Where, rules: Sequence[str], reason: str) -> list[RuleResult]:
    """Say of every rule why there is no acceptance."""
    every = (*rules, OPTIMUM, BOUND)
    return [RuleResult(*where, rule, math.nan, reason=reason) for rule in every]


def _measure(where: Where, problem: Problem, rule: str, limit: float) -> RuleResult:
    found = attempt(with_time_limit(rule, limit), problem)
    acceptance, guarantee = math.nan, ""
    if found.solution is not None:
        acceptance, guarantee = found.solution.acceptance, found.solution.guarantee.name
    return RuleResult(*where, rule, acceptance, guarantee, found.reason)


def _references(where: Where, problem: Problem) -> Iterator[RuleResult]:
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        try:
            best, doubt = optimal_acceptance(problem)[0], "".join(str(w.message) for w in doubts)
        except OTLPError as error:
            best, doubt = math.nan, str(error)
    yield RuleResult(*where, OPTIMUM, best, reason=doubt)
    yield RuleResult(*where, BOUND, upper_bound(problem))


def summarise(
    measurements: Iterable[RuleResult],
    temperature: float = 1.0,
    top_k: int | None = None,
    passages: IntArray | None = None,
) -> list[SweepPoint]:
    """Average over rows, in the order in which combinations first appear.

    Without the passage of each row every row is one of its own.
    """
    groups: dict[tuple[SweepSetting, str], list[RuleResult]] = {}
    for found in measurements:
        setting = SweepSetting(found.scheme, found.n, temperature, top_k)
        groups.setdefault((setting, found.rule), []).append(found)
    return [
        SweepPoint.of(
            *key,
            np.array([found.acceptance for found in group]),
            next((found.reason for found in group if found.reason), ""),
            rows if passages is None else passages[rows],
        )
        for key, group in groups.items()
        for rows in [np.array([found.row for found in group])]
    ]
