"""An engine's verifier on paths of random models, and its drafts beside what it says of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from otlp.auditing import AuditReport, DraftedPaths, audit_rounds
from otlp.auditing.subject import Progress, silent
from otlp.decode import random_pair
from otlp.lab.engines.beside import Beside
from otlp.lab.engines.engine import Engine, EngineRounds


def audit_engine(
    engine: Engine,
    length: int,
    vocab_size: int,
    seed: int,
    *,
    samples: int,
    false_alarm_rate: float,
    progress: Progress = silent,
    **settings: Any,
) -> tuple[AuditReport, tuple[Beside, ...]]:
    """Audit an engine's verifier, and its drafting; `settings` are those of `audit_rounds`."""
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
        samples=samples,
        false_alarm_rate=false_alarm_rate,
        name=engine.label,
        rng=rng,
        progress=progress,
        **settings,
    )
    return report, engine.beside(samples, seed, false_alarm_rate, progress)
