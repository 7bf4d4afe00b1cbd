"""The audit itself: from a rule and its drafts to a report."""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from otlp.auditing.draft_check import DraftCheck, check_drafts, draft_vectors, exact_draft_check
from otlp.auditing.enumeration import NotEnumerableError, enumerate_law
from otlp.auditing.gtest import g_test, total_variation, total_variation_interval
from otlp.auditing.report import AuditReport, Verdict
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import DraftScheme, Explicit
from otlp.errors import InvalidInputError
from otlp.plan import Plan
from otlp.problem import Problem, check_tokens
from otlp.solution import Solution

__all__ = ["audit"]

Rule: TypeAlias = Callable[[IntArray, FloatArray, FloatArray, Any], Any]
Sampler: TypeAlias = Callable[[Any], npt.ArrayLike]
Progress: TypeAlias = Callable[[str, float], None]


@runtime_checkable
class _Solves(Protocol):
    def solve(self, problem: Problem) -> Solution: ...


@dataclass(frozen=True)
class _Failure:
    """What a rule did instead of returning a token."""

    what: str

    def __str__(self) -> str:
        return f"no token ({self.what})"


_Outcome: TypeAlias = "int | _Failure"


class _Step(NamedTuple):
    """What was drafted and what the rule made of it."""

    tokens: tuple[int, ...]
    outcome: _Outcome

    def __str__(self) -> str:
        return f"{self.outcome} for the drafts {list(self.tokens)}"


@dataclass(frozen=True, eq=False)
class _Setting:
    """What is audited, and on what."""

    rule: Rule
    target: FloatArray
    declared: DraftScheme
    drafts: DraftScheme | Sampler
    told: FloatArray
    tolerance: float

    def draw(self, rng: Any) -> IntArray:
        """Draw a tuple from the user's sampler."""
        assert not isinstance(self.drafts, DraftScheme)
        return check_tokens(self.drafts(rng), self.declared.n, self.target.size)

    def apply(self, tokens: IntArray, rng: Any) -> _Outcome:
        """Run the rule on copies, so that it may write to them."""
        try:
            token = self.rule(tokens.copy(), self.target.copy(), self.told.copy(), rng)
        except Exception as error:
            return _Failure(_raised(error))
        return _as_token(token, self.target.size)


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

    The rule's exact output law is computed where its random draws can be followed (see
    `otlp.auditing.enumeration`); otherwise it is sampled and tested.

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
        Sample size, where the law cannot be computed.
    false_alarm_rate : float
        Probability that a correct rule with correct drafts is rejected by the tests together.
    confidence : float
        Of the interval for the total variation, if sampled.
    tolerance : float
        Largest exact total variation that is called lossless: above the rounding of a rule in
        float32, far below what sampling could see.
    max_paths : int
        Sample instead if the enumeration needs more paths; 0 samples always.
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
        If a number is out of range, `declared` is missing beside a sampler, or the sampler returns
        no n-tuple of tokens.
    InvalidDistributionError
        If `target` is not a probability vector.

    Notes
    -----
    Enumeration runs the rule twice a path: about the number of tuples times V paths for a rule
    that ends in a draw from a residual.  Sampling runs it once a sample.

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
    if not isinstance(drafts, DraftScheme) and declared is None:
        raise InvalidInputError(
            "drafts is no draft scheme: beside a sampler pass declared=, the scheme that it is "
            "said to follow, such as otlp.IID(q, n)"
        )
    if not (isinstance(drafts, DraftScheme) or callable(drafts)):
        raise InvalidInputError(
            f"drafts is a {type(drafts).__name__}: pass a draft scheme or a sampler(rng) -> tokens"
        )
    scheme = drafts if declared is None else declared
    problem = Problem(target, scheme)  # type: ignore[arg-type]  # checked there
    if isinstance(drafts, DraftScheme):
        _check_same_shape(drafts, problem)
    plan = _plan(rule, problem)
    setting = _Setting(
        rule=_sampled(plan) if plan is not None else _callable(rule),
        target=problem.target,
        declared=problem.drafts,
        drafts=drafts,
        told=draft_vectors(problem.drafts) if told is None else np.array(told, dtype=np.float64),
        tolerance=tolerance,
    )
    rng = np.random.default_rng(0) if rng is None else rng
    try:
        if plan is not None and max_paths and isinstance(drafts, DraftScheme):
            exact = _audit_plan(plan, setting, drafts, max_paths)
            if exact is not None:
                return exact
        return _enumerated(setting, max_paths, rng, progress)
    except NotEnumerableError as reason:
        return _sample(setting, samples, false_alarm_rate, confidence, rng, progress, str(reason))


def _check_numbers(
    samples: int, false_alarm_rate: float, confidence: float, tolerance: float, max_paths: int
) -> None:
    if samples < 1000:
        raise InvalidInputError(f"samples is {samples}: a test needs at least 1000")
    for name, share in (("false_alarm_rate", false_alarm_rate), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise InvalidInputError(f"{name} is {share}: it must be between 0 and 1")
    if not tolerance >= 0.0:
        raise InvalidInputError(f"tolerance is {tolerance}: it must be at least 0")
    if max_paths < 0:
        raise InvalidInputError(f"max_paths is {max_paths}: it must be at least 0")


def _check_same_shape(drafts: DraftScheme, problem: Problem) -> None:
    given, wanted = (drafts.n, drafts.vocab_size), (problem.n, problem.vocab_size)
    if given != wanted:
        raise InvalidInputError(
            f"drafts has (n, V) = {given} and declared {wanted}: both must have the same n and V"
        )


def _plan(rule: object, problem: Problem) -> Plan | None:
    if isinstance(rule, Plan):
        return rule
    if isinstance(rule, _Solves):
        solution = rule.solve(problem)
        if solution.plan is None:
            raise InvalidInputError(f"there is no plan to audit: {solution}")
        return solution.plan
    return None


def _callable(rule: object) -> Rule:
    if not callable(rule):
        raise InvalidInputError(
            f"rule is a {type(rule).__name__}: pass a callable "
            "(draft_tokens, p, q, rng) -> token, a plan or a solver"
        )
    return rule


def _sampled(plan: Plan) -> Rule:
    return lambda draft_tokens, p, q, rng: plan.sample(draft_tokens, rng)


def _as_token(value: Any, vocab_size: int) -> _Outcome:
    item = value.item() if getattr(value, "shape", None) in ((1,), (1, 1)) else value
    try:
        if isinstance(item, (bool, np.bool_)):
            raise TypeError
        token = operator.index(item)
    except TypeError:
        return _Failure(f"returns {value!r}, which is no token id")
    if not 0 <= token < vocab_size:
        return _Failure(f"returns {token}, outside the vocabulary [0, {vocab_size})")
    return token


def _raised(error: Exception) -> str:
    """What was raised, on one line."""
    first, *_ = str(error).splitlines() or [""]
    return f"raises {type(error).__name__}: {first[:160]}".rstrip(": ")


def _commonest(failures: Mapping[str, float]) -> dict[str, float]:
    ranked = sorted(failures.items(), key=lambda entry: -entry[1])
    return dict(ranked[:5])


def _told_apart(setting: _Setting) -> float:
    """Total variation of what the rule is told from the law of the drafts; NaN if incomparable."""
    declared = setting.declared
    if isinstance(declared, Explicit) and declared.n > 1:
        return math.nan
    own = draft_vectors(declared)
    if own.shape != setting.told.shape:
        return math.nan
    return float(np.max(0.5 * np.abs(own - setting.told).sum(axis=-1)))


def _suspects(setting: _Setting) -> IntArray | None:
    """The tokens by q/p, which is what mistakes depend on; failures last; None without such a q."""
    size = setting.target.size
    if setting.told.shape[-1:] != (size,):
        return None
    mean = setting.told.reshape(-1, size).mean(axis=0)
    with np.errstate(over="ignore"):
        ratio = np.divide(mean, setting.target, out=np.zeros(size), where=setting.target > 0.0)
    return np.append(np.argsort(ratio, kind="stable"), size).astype(np.int64)


def _audit_plan(
    plan: Plan, setting: _Setting, drafts: DraftScheme, max_paths: int
) -> AuditReport | None:
    """From the plan's slices; else from its own account, if it is for these drafts; else None."""
    if drafts.tuple_count() <= max_paths:
        listed = drafts.enumerate_tuples()
        output, acceptance = np.zeros(setting.target.size), 0.0
        failures: defaultdict[str, float] = defaultdict(float)
        for tokens, mass in zip(listed.tokens, listed.mass.tolist(), strict=True):
            try:
                law = plan.conditional(tokens)
            except Exception as error:
                failures[_raised(error)] += mass
                continue
            output += mass * law
            acceptance += mass * float(law[np.unique(tokens)].sum())
        check = _compare_schemes(setting, drafts)
        return _exact(setting, output, acceptance, failures, check, 0.0, listed.mass.size)
    own = plan.problem
    if own.drafts is drafts is setting.declared and np.array_equal(own.target, setting.target):
        marginals = plan.marginals()
        acceptance = float(marginals.acceptance.sum())
        output, slack = marginals.output, 0.5 * marginals.slack
        return _exact(setting, output, acceptance, {}, None, slack, 0, "closed form")
    return None


def _compare_schemes(setting: _Setting, drafts: DraftScheme) -> DraftCheck | None:
    if drafts is setting.declared:
        return None
    listed = drafts.enumerate_tuples()
    keys = map(tuple, listed.tokens.tolist())
    law = dict(zip(keys, listed.mass.tolist(), strict=True))
    return exact_draft_check(law, setting.declared, setting.tolerance)


def _enumerated(
    setting: _Setting, max_paths: int, rng: np.random.Generator, progress: Progress
) -> AuditReport:
    """The exact output law, over all tuples and all random draws of the rule."""
    if max_paths == 0:
        raise NotEnumerableError("max_paths is 0")
    drafts = setting.drafts
    if isinstance(drafts, DraftScheme):
        if drafts.tuple_count() > max_paths:
            raise NotEnumerableError(
                f"there are {drafts.tuple_count():,.0f} tuples, more than max_paths = {max_paths:,}"
            )
        listed = drafts.enumerate_tuples()
        mass = listed.mass / listed.mass.sum()

    def program(source: Any) -> _Step:
        if isinstance(drafts, DraftScheme):
            tokens = listed.tokens[source.category(mass)]
        else:
            try:
                tokens = setting.draw(source)
            except Exception as error:
                raise NotEnumerableError(f"the sampler raises {error!r}") from error
        return _Step(tuple(tokens.tolist()), setting.apply(tokens, source))

    law = enumerate_law(
        program, max_paths, rng, lambda paths: progress("following paths", paths / max_paths)
    )
    output, acceptance = np.zeros(setting.target.size), 0.0
    failures: defaultdict[str, float] = defaultdict(float)
    tuples: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for (tokens, outcome), weight in law.weights.items():
        tuples[tokens] += weight
        if isinstance(outcome, _Failure):
            failures[outcome.what] += weight
            continue
        output[outcome] += weight
        if outcome in tokens:
            acceptance += weight
    if isinstance(drafts, DraftScheme):
        check = _compare_schemes(setting, drafts)
    else:
        check = exact_draft_check(tuples, setting.declared, setting.tolerance)
    return _exact(setting, output, acceptance, failures, check, law.unexplored, law.paths)


def _exact(
    setting: _Setting,
    output: FloatArray,
    acceptance: float,
    failures: Mapping[str, float],
    check: DraftCheck | None,
    slack: float,
    size: int,
    method: str = "enumeration",
) -> AuditReport:
    failed = float(sum(failures.values()))
    apart = total_variation(np.append(output, failed), np.append(setting.target, 0.0))
    if apart - slack <= setting.tolerance < apart + slack:
        raise NotEnumerableError(f"its exact law is known up to {slack:.2g} only")
    if failed > setting.tolerance:
        verdict = Verdict.RULE_FAILED
    elif check is not None and not check.agrees:
        verdict = Verdict.DRAFTS_DIFFER
    else:
        lossless = apart + slack <= setting.tolerance
        verdict = Verdict.LOSSLESS if lossless else Verdict.NOT_LOSSLESS
    return AuditReport(
        verdict=verdict,
        method=method,
        why_sampled="",
        target=setting.target,
        output=output,
        acceptance=acceptance,
        total_variation=apart,
        interval=(max(0.0, apart - slack), min(1.0, apart + slack)),
        confidence=1.0,
        tolerance=setting.tolerance,
        test=None,
        false_alarm_rate=0.0,
        failures=_commonest(failures),
        drafts=check,
        told_apart=_told_apart(setting),
        size=size,
    )


def _draw(
    setting: _Setting, samples: int, rng: np.random.Generator, progress: Progress
) -> tuple[IntArray, IntArray, Counter[str]]:
    """Drafted tuples, outputs (V stands for a failure), and what failed how often."""
    size = setting.target.size
    scheme = setting.drafts if isinstance(setting.drafts, DraftScheme) else None
    drawn = None if scheme is None else scheme.sample(rng, samples)
    tokens = np.empty((samples, setting.declared.n), dtype=np.int64)
    outputs = np.full(samples, size, dtype=np.int64)
    failures: Counter[str] = Counter()
    for j in range(samples):
        tokens[j] = setting.draw(rng) if drawn is None else drawn[j]
        outcome = setting.apply(tokens[j], rng)
        if isinstance(outcome, _Failure):
            failures[outcome.what] += 1
        else:
            outputs[j] = outcome
        if j % 256 == 0:
            progress("sampling", j / samples)
    progress("sampling", 1.0)
    return tokens, outputs, failures


def _sample(
    setting: _Setting,
    samples: int,
    false_alarm_rate: float,
    confidence: float,
    rng: np.random.Generator,
    progress: Progress,
    why: str,
) -> AuditReport:
    """Draw drafts and outputs, and test both; half the false alarms each if both are tested."""
    size = setting.target.size
    tokens, outputs, failures = _draw(setting, samples, rng, progress)
    checked = setting.drafts is not setting.declared
    share = false_alarm_rate / 2.0 if checked else false_alarm_rate
    check = check_drafts(tokens, setting.declared, share, rng) if checked else None
    law = np.append(setting.target, 0.0)
    first, second = (np.bincount(half, minlength=size + 1) for half in np.array_split(outputs, 2))
    test = g_test(first + second, law, share, order=_suspects(setting))
    output = (first + second) / samples
    if failures:
        verdict = Verdict.RULE_FAILED
    elif check is not None and not check.agrees:
        verdict = Verdict.DRAFTS_DIFFER
    else:
        verdict = Verdict.NOT_LOSSLESS if test.rejects(share) else Verdict.NOT_REJECTED
    return AuditReport(
        verdict=verdict,
        method="sampling",
        why_sampled=why,
        target=setting.target,
        output=output[:size],
        acceptance=float((tokens == outputs[:, None]).any(axis=1).mean()),
        total_variation=total_variation(output, law),
        interval=total_variation_interval(first, second, law, confidence),
        confidence=confidence,
        tolerance=setting.tolerance,
        test=test,
        false_alarm_rate=false_alarm_rate,
        failures=_commonest({what: count / samples for what, count in failures.items()}),
        drafts=check,
        told_apart=_told_apart(setting),
        size=samples,
    )
