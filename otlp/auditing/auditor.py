"""The audit itself: from a rule and its drafts to a report."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from otlp.auditing.enumeration import NotEnumerableError
from otlp.auditing.exact import audit_conditionals, audit_exactly
from otlp.auditing.report import AuditReport
from otlp.auditing.sampled import audit_by_sampling
from otlp.auditing.subject import (
    Progress,
    Rule,
    Sampler,
    Subject,
    check_signature,
    draft_vectors,
)
from otlp.distribution import FloatArray, as_floats, whole_number
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Solution
from otlp.solvers.limits import check_number


@runtime_checkable
class _Solves(Protocol):
    def solve(self, problem: Problem) -> Solution: ...


def audit(
    rule: Rule | Plan | _Solves,
    target: npt.ArrayLike,
    drafts: DraftScheme | Sampler,
    *,
    declared: DraftScheme | None = None,
    told: npt.ArrayLike | None = None,
    samples: int = 100_000,
    false_alarm_rate: float = 1e-6,
    confidence: float = 0.99,
    tolerance: float = 1e-6,
    max_paths: int = 100_000,
    rng: np.random.Generator | None = None,
    progress: Progress = lambda label, done: None,
) -> AuditReport:
    """Say whether a verification rule is lossless: whether its output follows the target.

    The rule's exact output distribution is computed where its random draws can be followed (see
    `otlp.auditing.enumeration`); otherwise it is sampled and tested.  A plan is audited through
    both `Plan.conditional`, which must give distributions, and `Plan.sample`, which must follow
    them.

    Parameters
    ----------
    rule : callable, Plan or Solver
        ``rule(draft_tokens, p, q, rng) -> token``.  `draft_tokens` has shape (n,), `p` is the
        target, `q` what the rule is told of the drafts, `rng` a `numpy.random.Generator`; the
        rule may write to its arguments.
    target : array_like, shape (V,)
        The target distribution p.
    drafts : DraftScheme or callable
        How the drafts are really drawn: a scheme, or a sampler ``drafts(rng) -> tokens``.
    declared : DraftScheme, optional
        The scheme that the drafts are said to follow; needed beside a sampler.  The drafts are
        checked against it.
    told : array_like, optional
        What the rule is told as q; by default the draft vector of the declared scheme, of shape
        (V,), or (n, V) for different drafts.
    samples : int
        Sample size, where the distribution cannot be computed.
    false_alarm_rate : float
        Probability that a correct rule with correct drafts is rejected by the tests together.
    confidence : float
        Of the interval for the total variation, if sampled.
    tolerance : float
        Largest exact total variation that is called lossless: above the rounding of a rule in
        float32, far below what sampling could see.
    max_paths : int
        Sample instead if the enumeration needs more paths; 0 samples always, a plan's
        conditionals too.
    rng : numpy.random.Generator, optional
        By default ``numpy.random.default_rng(0)``.
    progress : callable
        Called with a label and the share done.

    Returns
    -------
    AuditReport
        ``str(report)`` is a summary in plain words.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type or range, `declared` is missing beside a sampler, or the
        sampler raises or returns no n-tuple of tokens.
    InvalidDistributionError
        If `target` is not a probability vector.
    SizeLimitError
        If the sampled tuples would take more than 2 GiB.

    Notes
    -----
    Enumeration runs the rule twice a path, and 2,000 times more: about the number of tuples times
    V paths for a rule that ends in a draw from a residual.  Sampling runs it once a sample.

    LOSSLESS assumes that what the rule returns depends on its arguments and on `rng` alone.  That
    is watched (see `otlp.auditing.hidden`), and a rule that is seen to use more is sampled; what
    compiled code, threads, files or other processes bring in is not seen.

    Examples
    --------
    A rule that forgets to subtract what the first draft had its chance at:

    >>> import numpy as np, otlp
    >>> def rule(draft_tokens, p, q, rng):
    ...     for token in draft_tokens:
    ...         if rng.random() < p[token] / q[token]:
    ...             return token
    ...     residual = np.maximum(p - q, 0)
    ...     return rng.choice(len(p), p=residual / residual.sum())
    >>> report = otlp.audit(rule, [0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> report.verdict.name, round(report.total_variation, 6)
    ('NOT_LOSSLESS', 0.06)
    """
    _check_numbers(samples, false_alarm_rate, confidence, tolerance, max_paths)
    rng = np.random.default_rng(0) if rng is None else rng
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(f"rng is a {type(rng).__name__}: pass a numpy.random.Generator")
    if not callable(progress):
        raise InvalidInputError(f"progress is a {type(progress).__name__}: pass a callable")
    problem = _problem(target, drafts, declared)
    subject = _subject(rule, problem, drafts, told, float(tolerance))
    try:
        if max_paths == 0:
            raise NotEnumerableError("max_paths is 0")
        if subject.plan is not None and isinstance(drafts, DraftScheme):
            report = audit_conditionals(subject, drafts, max_paths)
            if not report.passed:
                return report
        return audit_exactly(subject, max_paths, rng, progress)
    except NotEnumerableError as reason:
        return audit_by_sampling(
            subject, samples, false_alarm_rate, confidence, rng, progress, str(reason)
        )


def _check_numbers(
    samples: Any, false_alarm_rate: Any, confidence: Any, tolerance: Any, max_paths: Any
) -> None:
    for name, count, least in (("samples", samples, 1000), ("max_paths", max_paths, 0)):
        if whole_number(count, name, least) >= 2**63:
            raise InvalidInputError(f"{name} is 2^63 or more: it must be below")
    for name, share in (("false_alarm_rate", false_alarm_rate), ("confidence", confidence)):
        check_number(name, share, lambda x: 0.0 < x < 1.0, "be a number between 0 and 1")
    check_number("tolerance", tolerance, lambda x: 0.0 <= x < 2**63, "be a number >= 0")


def _problem(target: Any, drafts: Any, declared: Any) -> Problem:
    """The problem that the rule is told of."""
    if isinstance(drafts, DraftScheme):
        problem = Problem(target, drafts if declared is None else declared)
        given, wanted = (drafts.n, drafts.vocab_size), (problem.n, problem.vocab_size)
        if given != wanted:
            raise InvalidInputError(
                f"drafts has (n, V) = {given} and declared {wanted}: both must have the same n "
                "and V"
            )
        return problem
    if not callable(drafts) or isinstance(drafts, type):
        raise InvalidInputError(
            f"drafts is a {type(drafts).__name__}: pass a draft scheme or a sampler(rng) -> tokens"
        )
    if declared is None:
        raise InvalidInputError(
            "drafts is no draft scheme: beside a sampler pass declared=, the scheme that it is "
            "said to follow, such as otlp.IID(q, n)"
        )
    return Problem(target, declared)


def _subject(
    rule: Any, problem: Problem, drafts: DraftScheme | Sampler, told: Any, tolerance: float
) -> Subject:
    plan = _plan(rule, problem)
    if plan is None and not callable(rule):
        raise InvalidInputError(
            f"rule is a {type(rule).__name__}: pass a callable "
            "(draft_tokens, p, q, rng) -> token, a plan or a solver"
        )
    if plan is None:
        check_signature(rule)
    return Subject(
        rule=rule if plan is None else lambda tokens, p, q, rng: plan.sample(tokens, rng),
        plan=plan,
        target=problem.target,
        declared=problem.drafts,
        drafts=drafts,
        told=_told(told, problem.drafts),
        tolerance=tolerance,
    )


def _plan(rule: Any, problem: Problem) -> Plan | None:
    if isinstance(rule, Plan):
        return rule
    if not isinstance(rule, _Solves):
        return None
    if isinstance(rule, type):
        raise InvalidInputError(f"rule is the class {rule.__name__}: pass {rule.__name__}()")
    solution = rule.solve(problem)
    if not isinstance(solution, Solution):
        raise InvalidInputError(f"rule.solve returns a {type(solution).__name__}, no Solution")
    if solution.plan is None:
        raise InvalidInputError(f"there is no plan to audit: {solution}")
    return solution.plan


def _told(told: Any, declared: DraftScheme) -> FloatArray:
    """What the rule is told as q: by default the declared q, or the mean of the drafts."""
    if told is None:
        own = draft_vectors(declared)
        return np.array(declared.mean_draft) if own is None else own
    given = as_floats(told, "told")
    if given.ndim == 0:
        raise InvalidInputError(f"told is {given}: it must be an array, such as q of shape (V,)")
    return given.copy()
