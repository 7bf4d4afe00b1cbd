"""Audit by sampling: tests of drawn drafts and outputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from otlp.auditing.audited_rule import AuditedRule, Failure, Output
from otlp.auditing.gtest import GTest, g_test, total_variation_interval
from otlp.auditing.real_calls import play_rounds
from otlp.auditing.report import AuditReport, report_on
from otlp.auditing.settings import AuditRun
from otlp.distribution import FloatArray, IntArray, total_variation

COMPARED = 10_000
"""Number of a plan's samples that are tested against its conditionals."""

BINS = 32


def audit_by_sampling(audited: AuditedRule, settings: AuditRun, why: str) -> AuditReport:
    """Sample drafts and outputs and test them; the tests share the false-alarm rate equally.

    Raises
    ------
    SizeLimitError
        If the drafted tuples would need more than 2 GiB.
    """
    return judge_sample(audited, settings, why, *play_rounds(audited, settings, settings.samples))


def judge_sample(
    audited: AuditedRule, settings: AuditRun, why: str, tokens: IntArray, outputs: list[Output]
) -> AuditReport:
    """Test sampled drafts and outputs; the tests share the false-alarm rate equally."""
    samples, rng, confidence = settings.samples, settings.rng, settings.confidence
    failures = Counter(output.what for output in outputs if isinstance(output, Failure))
    plan = audited.plan is not None
    share = settings.false_alarm_rate / (1 + audited.checked + plan)
    drafts = audited.test_drafts(tokens, share, rng) if audited.checked else None
    sample_test = None
    if plan:
        sample_test = _test_against_conditionals(audited, tokens, outputs, failures, share, rng)
    law = np.append(audited.texts(), 0.0)
    cells = audited.cells(outputs, rng)
    first, second = (np.bincount(half, minlength=law.size) for half in np.array_split(cells, 2))
    output = (first + second) / samples
    accepted = [
        0.0 if isinstance(output, Failure) else audited.accepted(row, output)
        for row, output in zip(tokens.tolist(), outputs, strict=True)
    ]
    lengths = [0 if isinstance(o, Failure) else audited.token_count(o) for o in outputs]
    acceptance, acceptance_error = _mean(accepted, confidence)
    mean_tokens, tokens_error = _mean(lengths, confidence)
    return report_on(
        audited,
        settings,
        law[:-1],
        output[:-1],
        {what: count / samples for what, count in failures.items()},
        method="sampling",
        why_sampled=why,
        acceptance=acceptance,
        acceptance_error=acceptance_error,
        tokens=mean_tokens,
        tokens_error=tokens_error,
        total_variation=total_variation(output, law),
        interval=total_variation_interval(first, second, law, confidence),
        confidence=confidence,
        test=g_test(first + second, law, share, order=audited.pooling_order),
        false_alarm_rate=settings.false_alarm_rate,
        drafts=drafts,
        size=samples,
        sample_error=math.nan if plan else 0.0,
        sample_test=sample_test,
    )


def _mean(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the mean and half of its Wilson interval, which is positive for equal values."""
    count, z = len(values), float(special.ndtri(0.5 + 0.5 * confidence))
    spread = float(np.var(values)) / count + (0.5 * z / count) ** 2
    return float(np.mean(values)), z * math.sqrt(spread) / (1.0 + z**2 / count)


def _test_against_conditionals(
    audited: AuditedRule,
    tokens: IntArray,
    outputs: list[Output],
    failures: Counter[str],
    rate: float,
    rng: np.random.Generator,
) -> GTest:
    """Test a plan's samples against its conditionals.

    The randomized probability integral transform maps a token to a uniform position within its
    step of the cumulative law; the position is uniform on [0, 1] for every law.  The positions are
    counted in 32 bins over all tuples.  The cumulative law starts with the drafts in order, so
    that a wrong acceptance probability shifts the positions of all tuples in the same direction.
    """
    conditional = lru_cache(maxsize=1024)(audited.conditional)
    counts = np.zeros(BINS + 1, dtype=np.int64)
    for drafted, output in zip(tokens[:COMPARED].tolist(), outputs, strict=False):
        if isinstance(output, Failure):
            continue
        law, token = conditional(tuple(drafted)), output[0]
        if isinstance(law, Failure):
            failures[law.what] += 1
        elif law[token] <= 0.0:
            counts[BINS] += 1
        else:
            position = _mass_before(law, drafted, token) + rng.random() * law[token]
            counts[min(BINS - 1, int(BINS * position))] += 1
    if not counts.any():  # Every sample failed; the verdict is RULE_FAILED.
        counts[0] = 1
    return g_test(counts, np.append(np.full(BINS, 1.0 / BINS), 0.0), rate)


def _mass_before(law: FloatArray, drafted: list[int], token: int) -> float:
    """Return the mass of the preceding tokens: the drafts come first, then the other tokens."""
    distinct = list(dict.fromkeys(drafted))
    if token in distinct:
        return float(law[distinct[: distinct.index(token)]].sum())
    later = [other for other in distinct if other > token]
    return float(law[:token].sum() + law[later].sum())
