"""The audit by sampling: drafts and outputs are drawn and tested, where no exact law is found."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np

from otlp.auditing.draft_check import check_drafts
from otlp.auditing.gtest import GTest, g_test, total_variation_interval
from otlp.auditing.report import AuditReport, commonest
from otlp.auditing.subject import Failure, Progress, Subject
from otlp.checks import check_memory
from otlp.distribution import FloatArray, IntArray, total_variation
from otlp.drafts import DraftScheme

MEMORY_LIMIT = 2 * 1024**3
"""Bytes that the drafted tuples may take."""

COMPARED = 10_000
"""How many of a plan's samples are held against its conditionals."""

BINS = 32


def audit_by_sampling(
    subject: Subject,
    samples: int,
    false_alarm_rate: float,
    confidence: float,
    rng: np.random.Generator,
    progress: Progress,
    why: str,
) -> AuditReport:
    """Draw drafts and outputs and test them; the tests share the false-alarm rate equally.

    Raises
    ------
    SizeLimitError
        If the drafted tuples would take more than 2 GiB.
    """
    size = subject.target.size
    tokens, outputs, failures = _draw(subject, samples, rng, progress)
    checked = subject.drafts is not subject.declared
    share = false_alarm_rate / (1 + checked + (subject.plan is not None))
    drafts = check_drafts(tokens, subject.declared, share, rng) if checked else None
    sample_test = None
    if subject.plan is not None:
        sample_test = _test_against_conditionals(subject, tokens, outputs, failures, share, rng)
    law = np.append(subject.target, 0.0)
    first, second = (np.bincount(half, minlength=size + 1) for half in np.array_split(outputs, 2))
    test = g_test(first + second, law, share, order=_suspects(subject))
    output = (first + second) / samples
    return AuditReport(
        method="sampling",
        why_sampled=why,
        target=subject.target,
        output=output[:size],
        acceptance=float((tokens == outputs[:, None]).any(axis=1).mean()),
        total_variation=total_variation(output, law),
        interval=total_variation_interval(first, second, law, confidence),
        confidence=confidence,
        tolerance=subject.tolerance,
        test=test,
        false_alarm_rate=false_alarm_rate,
        failures=commonest({what: count / samples for what, count in failures.items()}),
        drafts=drafts,
        told_apart=subject.told_apart,
        size=samples,
        sample_apart=0.0 if sample_test is None else math.nan,
        sample_test=sample_test,
    )


def _draw(
    subject: Subject, samples: int, rng: np.random.Generator, progress: Progress
) -> tuple[IntArray, IntArray, Counter[str]]:
    """Drafted tuples, outputs (V stands for a failure), and what failed how often."""
    size, n = subject.target.size, subject.declared.n
    check_memory(f"{samples:,} tuples of n = {n:,} drafts", 16.0 * samples * n, MEMORY_LIMIT)
    scheme = subject.drafts if isinstance(subject.drafts, DraftScheme) else None
    drawn = None if scheme is None else scheme.sample(rng, samples)
    tokens = np.empty((samples, n), dtype=np.int64)
    outputs = np.full(samples, size, dtype=np.int64)
    failures: Counter[str] = Counter()
    for j in range(samples):
        tokens[j] = subject.draw(rng) if drawn is None else drawn[j]
        outcome = subject.verify(tokens[j], rng)
        if isinstance(outcome, Failure):
            failures[outcome.what] += 1
        else:
            outputs[j] = outcome
        if j % 256 == 0:
            progress("sampling", j / samples)
    progress("sampling", 1.0)
    return tokens, outputs, failures


def _suspects(subject: Subject) -> IntArray | None:
    """The tokens by q/p, which is what mistakes depend on; failures last; None without such a q."""
    size = subject.target.size
    if subject.told.shape[-1:] != (size,):
        return None
    mean = subject.told.reshape(-1, size).mean(axis=0)
    with np.errstate(over="ignore"):
        ratio = np.divide(mean, subject.target, out=np.zeros(size), where=subject.target > 0.0)
    return np.append(np.argsort(ratio, kind="stable"), size).astype(np.int64)


def _test_against_conditionals(
    subject: Subject,
    tokens: IntArray,
    outputs: IntArray,
    failures: Counter[str],
    rate: float,
    rng: np.random.Generator,
) -> GTest:
    """Whether a plan's samples follow its conditionals.

    A token drawn from a law, put at a uniform place within its own step of the cumulative law,
    is uniform on [0, 1], whatever the law (the randomised probability integral transform); 32 bins
    of equal probability are counted over all tuples.  The cumulative law begins with the drafts in
    their order, so that a wrong chance of acceptance moves the places of all tuples one way.
    """
    conditional = lru_cache(maxsize=1024)(subject.conditional)
    counts = np.zeros(BINS + 1, dtype=np.int64)
    for drafted, token in zip(tokens[:COMPARED].tolist(), outputs.tolist(), strict=False):
        if token == subject.target.size:
            continue
        law = conditional(tuple(drafted))
        if isinstance(law, Failure):
            failures[law.what] += 1
        elif law[token] <= 0.0:
            counts[BINS] += 1
        else:
            place = _mass_before(law, drafted, token) + rng.random() * law[token]
            counts[min(BINS - 1, int(BINS * place))] += 1
    if not counts.any():  # every sample failed, which is the verdict
        counts[0] = 1
    return g_test(counts, np.append(np.full(BINS, 1.0 / BINS), 0.0), rate)


def _mass_before(law: FloatArray, drafted: list[int], token: int) -> float:
    """Mass of the tokens before this one: the drafts come first, then the others."""
    distinct = list(dict.fromkeys(drafted))
    if token in distinct:
        return float(law[distinct[: distinct.index(token)]].sum())
    others = law[:token].copy()
    others[[other for other in distinct if other < token]] = 0.0
    return float(law[distinct].sum() + others.sum())
