"""Entry points of the audit: `audit` for rules over one token, `audit_rounds` for rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otlp.auditing.argument_order import swap_laws
from otlp.auditing.audited_round_rule import RoundSampler, audited_round_rule
from otlp.auditing.audited_rule import AuditedRule, Progress, Rule, silent
from otlp.auditing.audited_token_rule import AuditedTokenRule, Sampler, Solves, audited_token_rule
from otlp.auditing.drafted_tree import DraftedRound
from otlp.auditing.enumeration import NotEnumerableError
from otlp.auditing.exact import audit_conditionals, audit_exactly
from otlp.auditing.own_draws import Drafter, audit_own_draws, own_draws
from otlp.auditing.real_calls import CALLS, RefutedError
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.sampled import audit_by_sampling
from otlp.auditing.scheduled import Schedule, Scheduled, scheduled
from otlp.auditing.settings import AuditRun, AuditSettings, run_with
from otlp.checks import number, whole_number
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError
from otlp.plan import Plan

DEFAULT_SETTINGS = AuditSettings()

DEFAULT_TOKENS, DEFAULT_ROUNDS = 100_000, 20_000
"""Default number of samples and maximum number of paths, of tokens and of rounds."""


def audit(
    rule: Rule | Plan | Solves,
    target: npt.ArrayLike,
    drafts: DraftScheme | Sampler,
    *,
    declared: DraftScheme | None = None,
    reported_draft: npt.ArrayLike | None = None,
    stated: float | None = None,
    settings: AuditSettings = DEFAULT_SETTINGS,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a verification rule over one token: test whether its output follows the target.

    The exact output distribution of the rule is computed if its random draws can be followed (see
    `otlp.auditing.enumeration`); otherwise the output is sampled and tested.  For a plan,
    `Plan.conditional` must return a distribution for every tuple, and `Plan.sample` must follow
    these distributions; `Plan.sample` is sampled if it is compiled code.

    Parameters
    ----------
    rule : callable, Plan or Solver
        ``rule(draft_tokens, p, q, rng) -> token``.  `draft_tokens` has shape (n,), `p` is the
        target, `q` is `reported_draft`, `rng` is a `numpy.random.Generator`; the rule may write to
        its arguments.  Parameters with recognized names such as `draft_token_ids`, `target_probs`
        and `draft_probs` (`otlp.auditing.argument_order.NAMES`) may be in any order; the others
        are mapped by position, and the report shows the mapping.  Parameters annotated as tensors
        receive tensors, and `rng` may be missing.
    target : array_like, shape (V,)
        The target distribution p.
    drafts : DraftScheme or callable
        How the drafts are actually drawn: a scheme, or a sampler ``drafts(rng) -> tokens``.
    declared : DraftScheme, optional
        The scheme that the drafts are declared to follow, default `drafts`; required if `drafts`
        is a sampler.  The drafts are checked against this scheme.
    reported_draft : array_like, optional
        The q that is passed to the rule.  Default: the draft vector of the declared scheme, of
        shape (V,), or (n, V) if the drafts differ.
    stated : float, optional
        Stated acceptance of the rule.  The verdict is SLOWER_THAN_STATED if the rule's acceptance
        is significantly lower, for example because q was lost in a port.
    settings : otlp.auditing.AuditSettings
        Sample size, false-alarm rate and limits.
    rng : numpy.random.Generator, optional
        Default: ``numpy.random.default_rng(0)``.
    progress : callable
        Called with a label and the completed fraction.

    Returns
    -------
    AuditReport
        ``str(report)`` is a summary.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If an argument has the wrong type or range, `drafts` is a sampler and `declared` is
        missing, or the sampler raises or does not return n tokens.
    SizeLimitError
        If the sampled tuples would need more than 2 GiB.

    Notes
    -----
    Enumeration runs the rule twice per path, and 2,000 more times.  A rule that ends with a draw
    from a residual has about V paths per tuple.  Then 10,000 real calls are tested against the
    computed distribution.  Sampling runs the rule once per sample.

    LOSSLESS assumes that the output of the rule depends only on its arguments and on `rng`.  A
    rule that is found to use other inputs (see `otlp.auditing.hidden_inputs`) is sampled; inputs
    through compiled code, threads, files or other processes are not detected.

    Examples
    --------
    A rule that verifies the second draft against p instead of the residual (p - q)^+:

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
    run = run_with(settings, DEFAULT_TOKENS, rng, progress)
    audited = audited_token_rule(rule, target, drafts, declared, reported_draft)
    checked_stated = _check_stated(stated)
    report = replace(_audit(audited, run), stated=checked_stated)
    same = audited.plan is None and audited.reported_draft.shape == audited.problem.target.shape
    if not same or report.verdict not in (Verdict.NOT_LOSSLESS, Verdict.RULE_FAILED):
        return report
    fewer = replace(run, samples=min(run.samples, CALLS))
    swapped = _audit(replace(audited, rule=swap_laws(audited.rule)), fewer)
    return replace(report, lossless_swapped=swapped.passed)


def audit_rounds(
    rule: Rule,
    target: Sequence[npt.ArrayLike],
    draft: Sequence[npt.ArrayLike],
    drafts: DraftedRound,
    *,
    sampler: RoundSampler | None = None,
    drafter: Drafter | None = None,
    schedule: Schedule | None = None,
    steps: int = 1,
    batch: int | None = None,
    stated: float | None = None,
    settings: AuditSettings = DEFAULT_SETTINGS,
    name: str | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a rule over several drafted tokens, over paths or over a tree.

    The exact output distribution is computed if the random draws of the rule (NumPy or PyTorch)
    can be followed (see `otlp.auditing.enumeration`); otherwise texts are sampled and tested.

    Parameters
    ----------
    rule : callable
        ``rule(draft_tokens, p, q, rng) -> tokens``: the accepted tokens and one more, optionally
        padded with -1 at the end.  `p` and `q` are the target and draft distributions at the
        drafted positions; see `drafts` for the shapes.  `rng` is a `numpy.random.Generator`; the
        rule may draw with PyTorch's functions instead.  The rule may write to its arguments.
    target, draft : sequence of array_like
        The models: distributions after prefixes of 0, 1, ... tokens, of shape (V,), (V, V), ...
        such as `otlp.decode.TabularModel.tables`: L + 1 tables of the target, L of the draft.
    drafts : DraftedPaths or DraftedTree
        How tokens are drafted from the draft model.
    sampler : callable, optional
        ``sampler(draft_tables, rng) -> tokens``, node by node (path by path): the actual draft
        sampler, checked against `drafts`.  Without `batch`, the rule verifies each round before the
        next round is drafted.
    drafter : callable, optional
        ``drafter(draft_tables, rows) -> tokens`` of shape (rows, N): the draft sampler of an
        engine, which shares its generator, seeds and offsets with the verifier (the rule).
        `samples` rounds (or batches) are played in sequence from this state, and successive
        rounds are also tested for independence.  `rows` is 1 without `batch`.
    schedule : callable, optional
        ``schedule(draft_tokens, q, earlier) -> lengths``: number of tokens to verify for each of
        two requests; the remaining tokens are discarded.  `draft_tokens` has shape (2, L), `q`
        (2, L, V); `earlier` holds these pairs of the previous steps.  The joint distribution of
        all texts is audited.  Requires `DraftedPaths(1, L)`, no sampler, drafter or batch.
    steps : int
        Number of successive steps, with `schedule` only.
    batch : int, optional
        Maximum number of rounds per call.  The arrays have a leading axis of this length at most
        in real calls, and of length 1 in enumeration; the rule returns one row of tokens per
        round.  The tokens of every other row are renamed, so that rows differ already in the
        first p.
    stated : float, optional
        Stated mean number of tokens per round.  The verdict is SLOWER_THAN_STATED if the mean is
        significantly lower.
    settings : otlp.auditing.AuditSettings
        Sample size, false-alarm rate and limits.
    name : str, optional
        Name of the rule in the report.
    rng : numpy.random.Generator, optional
        Default: ``numpy.random.default_rng(0)``.
    progress : callable
        Called with a label and the completed fraction.

    Returns
    -------
    AuditReport
        ``str(report)`` is a summary.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If an argument has the wrong type or range, or the sampler raises or does not return
        tokens.
    SizeLimitError
        If there are more than a million texts of L + 1 tokens.

    Notes
    -----
    Enumeration runs the rule twice per path, and 2,000 more times; N drafted tokens have about V^N
    paths, each multiplied by the paths of the rule.  Then 10,000 real rounds are tested against
    the computed distribution.

    Examples
    --------
    A rule that accepts each token of a path with probability min(1, p / q), which is correct:

    >>> import numpy as np, otlp
    >>> def rule(draft_tokens, p, q, rng):
    ...     for i, token in enumerate(draft_tokens[0]):
    ...         if rng.random() * q[0, i, token] >= p[0, i, token]:
    ...             left = np.maximum(p[0, i] - q[0, i], 0)
    ...             return [*draft_tokens[0, :i], rng.choice(left.size, p=left / left.sum())]
    ...     return [*draft_tokens[0], rng.choice(p.shape[-1], p=p[0, -1])]
    >>> from otlp.auditing import DraftedPaths
    >>> draft, target = otlp.decode.random_pair(3, 3, np.random.default_rng(0))
    >>> otlp.audit_rounds(rule, target.tables, draft.tables, DraftedPaths(1, 2)).verdict.name
    'LOSSLESS'
    """
    run = run_with(settings, DEFAULT_ROUNDS, rng, progress)
    audited = audited_round_rule(rule, target, draft, drafts, sampler, batch, name)
    checked_stated = _check_stated(stated)
    if schedule is not None:
        if sampler is not None or drafter is not None or batch is not None:
            raise InvalidInputError("schedule excludes sampler, drafter and batch: omit these")
        joint = scheduled(rule, target, draft, drafts, schedule, steps, name)
        return replace(_audit_schedule(joint, run), stated=checked_stated)
    if whole_number(steps, "steps", 1) > 1:
        raise InvalidInputError("steps must be 1 without a schedule: pass schedule=")
    if drafter is not None:
        own = own_draws(audited, drafter)
        return replace(audit_own_draws(own, run), stated=checked_stated)
    return replace(_audit(audited, run), stated=checked_stated)


def _check_stated(stated: float | None) -> float:
    """Return `stated` as a float (NaN if None); raise InvalidInputError before any run."""
    return math.nan if stated is None else number(stated, "stated", 0.0)


def _audit_schedule(audited: Scheduled, settings: AuditRun) -> AuditReport:
    """Audit a scheduled rule; attribute a wrong law to the schedule if fixed lengths pass."""
    report = _audit(audited, settings)
    if report.verdict is not Verdict.NOT_LOSSLESS:
        return report
    fixed = all(_audit(rule, settings).passed for rule in audited.by_length)
    return replace(report, anticipation=audited.example() if fixed else "")


def _audit(audited: AuditedRule, settings: AuditRun) -> AuditReport:
    """Audit by enumeration if possible, otherwise by sampling."""
    conditionals = None
    try:
        if settings.max_paths == 0:
            raise NotEnumerableError("max_paths is 0")
        if isinstance(audited, AuditedTokenRule) and audited.drafts:
            count, most = audited.drafts.tuple_count(), settings.max_paths
            if count > most:
                raise NotEnumerableError(
                    f"there are {count:,.0f} tuples, more than max_paths = {most:,}"
                )
            if audited.plan:
                conditionals = audit_conditionals(audited, settings)
                if not conditionals.passed:
                    return conditionals
        return audit_exactly(audited, settings)
    except RefutedError as reason:
        # A sample smaller than the test that rejected the law could miss the deviation.
        larger = replace(settings, samples=max(settings.samples, CALLS))
        sampled = audit_by_sampling(audited, larger, str(reason))
    except NotEnumerableError as reason:
        sampled = audit_by_sampling(audited, settings, str(reason))
    if conditionals is None or not sampled.passed:
        return sampled
    # The conditionals are exact, so the sample only tests `Plan.sample`.
    return replace(
        conditionals,
        why_sampled=sampled.why_sampled,
        false_alarm_rate=sampled.false_alarm_rate,
        sample_error=sampled.sample_error,
        sample_test=sampled.sample_test,
    )
