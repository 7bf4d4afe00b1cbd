"""The audit itself: from a rule and its drafts to a report, of one token or of rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otlp.auditing.argument_order import swap_laws
from otlp.auditing.drafted_tree import DraftedRound
from otlp.auditing.enumeration import NotEnumerableError
from otlp.auditing.exact import audit_conditionals, audit_exactly
from otlp.auditing.own_draws import Drafter, audit_own_draws, own_draws
from otlp.auditing.real_calls import CALLS, RefutedError
from otlp.auditing.report import AuditReport, Verdict
from otlp.auditing.round_subject import RoundSampler, round_subject
from otlp.auditing.sampled import audit_by_sampling
from otlp.auditing.scheduled import Schedule, Scheduled, scheduled
from otlp.auditing.settings import AuditRun, AuditSettings, run_with
from otlp.auditing.subject import Progress, Rule, Subject, silent
from otlp.auditing.token_subject import Sampler, Solves, TokenSubject, token_subject
from otlp.checks import number, whole_number
from otlp.drafts import DraftScheme
from otlp.errors import InvalidInputError
from otlp.plan import Plan

USUAL = AuditSettings()

OF_TOKENS, OF_ROUNDS = 100_000, 20_000
"""Samples, and paths at most, where the settings leave them open."""


def audit(
    rule: Rule | Plan | Solves,
    target: npt.ArrayLike,
    drafts: DraftScheme | Sampler,
    *,
    declared: DraftScheme | None = None,
    reported_draft: npt.ArrayLike | None = None,
    stated: float | None = None,
    settings: AuditSettings = USUAL,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Say whether a verification rule is lossless: whether its output follows the target.

    The rule's exact output distribution is computed where its random draws can be followed (see
    `otlp.auditing.enumeration`); otherwise it is sampled and tested.  A plan is audited through
    both `Plan.conditional`, which must give distributions and is read tuple by tuple, and
    `Plan.sample`, which must follow them and is sampled where it is compiled code.

    Parameters
    ----------
    rule : callable, Plan or Solver
        ``rule(draft_tokens, p, q, rng) -> token``.  `draft_tokens` has shape (n,), `p` is the
        target, `q` what the rule is told of the drafts, `rng` a `numpy.random.Generator`; the
        rule may write to its arguments.  Names such as `draft_token_ids`, `target_probs` and
        `draft_probs` may stand in any order (`otlp.auditing.argument_order.NAMES`), others take
        the places that are left; the report says how they were read.  Parameters annotated as
        tensors are handed tensors, and `rng` may be missing.
    target : array_like, shape (V,)
        The target distribution p.
    drafts : DraftScheme or callable
        How the drafts are really drawn: a scheme, or a sampler ``drafts(rng) -> tokens``.
    declared : DraftScheme, optional
        The scheme that the drafts are said to follow; needed beside a sampler.  The drafts are
        checked against it.
    reported_draft : array_like, optional
        What the rule is told as q; by default the draft vector of the declared scheme, of shape
        (V,), or (n, V) for different drafts.
    stated : float, optional
        The acceptance that it should have: where it has less by more than chance, as where q was
        lost on the way, the verdict is SLOWER_THAN_STATED.
    settings : otlp.auditing.AuditSettings
        Sample size, false-alarm rate and limits.
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
    InvalidInputError, InvalidDistributionError
        If an argument has the wrong type or range, `declared` is missing beside a sampler, or the
        sampler raises or returns no n-tuple of tokens.
    SizeLimitError
        If the sampled tuples would take more than 2 GiB.

    Notes
    -----
    Enumeration runs the rule twice a path, and 2,000 times more: about the number of tuples times
    V paths for a rule that ends in a draw from a residual.  Then 10,000 real calls are tested
    against the law that was found.  Sampling runs it once a sample.

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
    run = run_with(settings, OF_TOKENS, rng, progress)
    subject = token_subject(rule, target, drafts, declared, reported_draft)
    said = _check_stated(stated)
    report = replace(_judge(subject, run), stated=said)
    same = subject.plan is None and subject.reported_draft.shape == subject.problem.target.shape
    if not same or report.verdict not in (Verdict.NOT_LOSSLESS, Verdict.RULE_FAILED):
        return report
    fewer = replace(run, samples=min(run.samples, CALLS))
    again = _judge(replace(subject, rule=swap_laws(subject.rule)), fewer)
    return replace(report, lossless_swapped=again.passed)


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
    settings: AuditSettings = USUAL,
    name: str | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Say whether a rule over several drafted tokens, paths or a tree is lossless.

    The law of the rule's output is computed where its random draws, NumPy's or PyTorch's, can be
    followed (see `otlp.auditing.enumeration`); otherwise texts are sampled and tested.

    Parameters
    ----------
    rule : callable
        ``rule(draft_tokens, p, q, rng) -> tokens``: the accepted tokens and one more; -1 may pad
        the end.  `p` and `q` are the target's and the draft's distributions at the drafted
        places; for shapes see `drafts`.  `rng` is a `numpy.random.Generator`; a rule may draw
        with PyTorch's functions instead.  It may write to its arguments.
    target, draft : sequence of array_like
        The models: distributions after prefixes of 0, 1, ... tokens, of shape (V,), (V, V), ...
        such as `otlp.decode.TabularModel.tables`: L + 1 tables of the target, L of the draft.
    drafts : DraftedPaths or DraftedTree
        How tokens are drafted from the draft model.
    sampler : callable, optional
        ``sampler(draft_tables, rng) -> tokens``, node by node (path by path): what really draws
        the drafts, checked against `drafts`.
    drafter : callable, optional
        ``drafter(draft_tables, rows) -> tokens`` of shape (rows, N): an engine's own draft sampler,
        with the generator, seeds and offsets that its verifier, the rule, goes on with.  `samples`
        rounds (or batches) are then played one after the other from that state, and successive
        ones tested for independence, too.  `rows` is 1 without `batch`.
    schedule : callable, optional
        ``schedule(draft_tokens, q, earlier) -> lengths``: how many tokens of each of two requests
        are verified, the rest being thrown away, from what was drafted for both, of shape (2, L),
        and its q, (2, L, V); `earlier` holds such pairs of the steps before.  The joint law of all
        texts is judged.  It goes with `DraftedPaths(1, L)`, without what draws drafts or `batch`.
    steps : int
        How many steps follow each other, where there is a schedule.
    batch : int, optional
        The rule takes several rounds at once: every array has a leading axis, of this length at
        most when played and 1 when followed, and a row of tokens a round is returned.  The tokens
        of every other row are renamed, so that rows differ from the first p on.
    stated : float, optional
        The mean tokens a round that it should give: where it gives less by more than chance, the
        verdict is SLOWER_THAN_STATED.
    settings : otlp.auditing.AuditSettings
        Sample size, false-alarm rate and limits.
    name : str, optional
        What the report calls the rule.
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
    InvalidInputError, InvalidDistributionError
        If an argument has the wrong type or range, or the sampler raises or returns no tokens.
    SizeLimitError
        If there are more than a million texts of L + 1 tokens.

    Notes
    -----
    Enumeration runs the rule twice a path and 2,000 times more; there are about V^N paths for N
    drafted tokens, times those of the rule.  Then 10,000 real rounds are tested against the law.

    Examples
    --------
    Each token of a path accepted with min(1, p / q), as it should be:

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
    run = run_with(settings, OF_ROUNDS, rng, progress)
    subject = round_subject(rule, target, draft, drafts, sampler, batch, name)
    said = _check_stated(stated)
    if schedule is not None:
        if sampler is not None or drafter is not None or batch is not None:
            raise InvalidInputError("schedule stands alone: leave out sampler, drafter and batch")
        joint = scheduled(rule, target, draft, drafts, schedule, steps, name)
        return replace(_judge_schedule(joint, run), stated=said)
    if whole_number(steps, "steps", 1) > 1:
        raise InvalidInputError("steps are those of a schedule: pass schedule=")
    if drafter is not None:
        own = own_draws(subject, drafter)
        return replace(audit_own_draws(own, run), stated=said)
    return replace(_judge(subject, run), stated=said)


def _check_stated(stated: float | None) -> float:
    """Refuse what is no acceptance before anything is run; NaN for none."""
    return math.nan if stated is None else number(stated, "stated", 0.0)


def _judge_schedule(subject: Scheduled, settings: AuditRun) -> AuditReport:
    """The audit; where texts are off that are right at each fixed length, the schedule's fault."""
    report = _judge(subject, settings)
    if report.verdict is not Verdict.NOT_LOSSLESS:
        return report
    fixed = all(_judge(one, settings).passed for one in subject.by_length)
    return replace(report, anticipation=subject.example() if fixed else "")


def _judge(subject: Subject, settings: AuditRun) -> AuditReport:
    """Exactly where that can be done, else by sampling."""
    stated = None
    try:
        if settings.max_paths == 0:
            raise NotEnumerableError("max_paths is 0")
        if isinstance(subject, TokenSubject) and subject.drafts:
            count, most = subject.drafts.tuple_count(), settings.max_paths
            if count > most:
                raise NotEnumerableError(
                    f"there are {count:,.0f} tuples, more than max_paths = {most:,}"
                )
            if subject.plan:
                stated = audit_conditionals(subject, settings)
                if not stated.passed:
                    return stated
        return audit_exactly(subject, settings)
    except RefutedError as reason:
        # a sample that is smaller than what refuted the law could miss what that saw
        larger = replace(settings, samples=max(settings.samples, CALLS))
        sampled = audit_by_sampling(subject, larger, str(reason))
    except NotEnumerableError as reason:
        sampled = audit_by_sampling(subject, settings, str(reason))
    if stated is None or not sampled.passed:
        return sampled
    # the conditionals are exact: of the sample only what it says of the sampler is needed
    return replace(
        stated,
        why_sampled=sampled.why_sampled,
        false_alarm_rate=sampled.false_alarm_rate,
        sample_error=sampled.sample_error,
        sample_test=sampled.sample_test,
    )
