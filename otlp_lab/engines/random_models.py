"""An engine's verifier on paths of random models, and its drafts beside what it says of them."""

from __future__ import annotations

import numpy as np

from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, audit_rounds
from otlp.auditing.auditor import OF_ROUNDS
from otlp.auditing.subject import Progress, silent
from otlp.decode import random_pair
from otlp_lab.engines.beside import Beside
from otlp_lab.engines.engine import Engine, EngineRounds


def audit_engine(
    engine: Engine,
    length: int,
    vocab_size: int,
    seed: int,
    *,
    settings: AuditSettings,
    progress: Progress = silent,
) -> tuple[AuditReport, tuple[Beside, ...]]:
    """Audit an engine's verifier, and its drafting."""
    found, rng = engine.rule(), np.random.default_rng(seed)
    rule, drafter = (
        (found.verify, found.draft) if isinstance(found, EngineRounds) else (found, None)
    )
    draft, target = random_pair(vocab_size, length + 1, rng)
    report = audit_rounds(
        rule,
        engine.aims(target.tables, draft.tables),
        draft.tables,
        DraftedPaths(1, length),
        drafter=drafter,
        batch=engine.batch,
        settings=settings,
        name=engine.label,
        rng=rng,
        progress=progress,
    )
    samples = OF_ROUNDS if settings.samples is None else settings.samples
    return report, engine.beside(samples, seed, settings.false_alarm_rate, progress)
