"""An engine's verifier on paths of random models, and its drafts beside what it says of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from otlp.auditing import AuditReport, DraftedPaths, audit_rounds
from otlp.decode import random_pair
from otlp.lab.engines import ENGINES
from otlp.lab.engines.candidate_generators import CandidateReport


def audit_engine(
    name: str,
    length: int,
    vocab_size: int,
    seed: int,
    *,
    samples: int,
    false_alarm_rate: float,
    **settings: Any,
) -> tuple[AuditReport, tuple[CandidateReport, ...]]:
    """Audit an engine's verifier, and its drafting; `settings` are those of `audit_rounds`."""
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
        **settings,
    )
    return report, engine.candidates(samples, seed, false_alarm_rate)
