"""``otlp audit --engine``: whether the verifier of a serving engine is lossless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otlp.auditing import AuditReport, audit_rounds
from otlp.auditing.engines import ENGINES
from otlp.decode import random_pair


def audit_engine(
    name: str, length: int, vocab_size: int, seed: int, samples: int, **settings: Any
) -> Callable[[Callable[..., None]], AuditReport]:
    """The work of auditing an engine's verifier on random models, for `run_in_child`."""
    engine = ENGINES[name]

    def work(progress: Callable[..., None]) -> AuditReport:
        rule, drafts = engine.rule(), engine.drafts(length)
        rng = np.random.default_rng(seed)
        draft, target = random_pair(vocab_size, drafts.depth + 1, rng)
        return audit_rounds(
            rule,
            target.tables,
            draft.tables,
            drafts,
            batch=engine.batch,
            samples=samples,
            name=engine.label,
            rng=rng,
            progress=progress,
            **settings,
        )

    return work
