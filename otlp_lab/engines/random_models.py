"""Audit of an engine's verifier and drafting on paths of random models."""

from __future__ import annotations

import numpy as np

from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, audit_rounds
from otlp.auditing.audited_rule import Progress, silent
from otlp.auditing.auditor import DEFAULT_ROUNDS
from otlp.decode import random_pair
from otlp_lab.engines.beside import SampleTests
from otlp_lab.engines.engine import Engine, EngineRounds


def audit_engine(
    engine: Engine,
    length: int,
    vocab_size: int,
    seed: int,
    *,
    settings: AuditSettings,
    progress: Progress = silent,
) -> tuple[AuditReport, tuple[SampleTests, ...]]:
    """Audit an engine's verifier and drafting."""
    found, rng = engine.rule(), np.random.default_rng(seed)
    rule, drafter = (
        (found.verify, found.draft) if isinstance(found, EngineRounds) else (found, None)
    )
    draft, target = random_pair(vocab_size, length + 1, rng)
    report = audit_rounds(
        rule,
        engine.expected_tables(target.tables, draft.tables),
        draft.tables,
        DraftedPaths(1, length),
        drafter=drafter,
        batch=engine.batch,
        settings=settings,
        name=engine.label,
        rng=rng,
        progress=progress,
    )
    samples = DEFAULT_ROUNDS if settings.samples is None else settings.samples
    return report, engine.sample_tests(samples, seed, settings.false_alarm_rate, progress)
