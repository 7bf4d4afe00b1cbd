"""``otlp audit --engine``: whether an engine's verifier is lossless, its q that of its drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otlp.auditing import AuditReport, DraftedPaths, audit_rounds
from otlp.auditing.engines import ENGINES
from otlp.auditing.engines.candidate_generators import CandidateReport
from otlp.decode import random_pair


def audit_engine(
    name: str,
    length: int,
    vocab_size: int,
    seed: int,
    progress: Callable[..., None],
    *,
    samples: int,
    false_alarm_rate: float,
    **settings: Any,
) -> tuple[AuditReport, tuple[CandidateReport, ...]]:
    """Audit an engine's verifier on random models, and its drafting."""
    engine = ENGINES[name]
    rule, rng = engine.rule(), np.random.default_rng(seed)
    draft, target = random_pair(vocab_size, length + 1, rng)
    report = audit_rounds(
        rule,
        target.tables,
        draft.tables,
        DraftedPaths(1, length),
        batch=engine.batch,
        samples=samples,
        false_alarm_rate=false_alarm_rate,
        name=engine.label,
        rng=rng,
        progress=progress,
        **settings,
    )
    return report, engine.candidates(samples, seed, false_alarm_rate)
