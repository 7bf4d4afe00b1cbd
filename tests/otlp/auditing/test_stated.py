"""Lossless rules that accept less than the expected acceptance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otlp import IID, audit, audit_rounds
from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, Verdict
from otlp.errors import InvalidInputError
from tests.otlp.auditing.shipped_rules import models, token_rule
from tests.otlp.cli.command import done, refused

pytestmark = pytest.mark.usefixtures("few_repetitions")

P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]


def whole(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    token = draft_tokens[0]
    if rng.random() * q[token] < p[token]:
        return token
    left = np.maximum(p - q, 0.0)
    return rng.choice(p.size, p=left / left.sum())


def lost(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Treat the draft as certain and accept with p, without q."""
    token = draft_tokens[0]
    if rng.random() < p[token]:
        return token
    left = p.copy()
    left[token] = 0.0
    return rng.choice(p.size, p=left / left.sum())


def judged(rule: Any, stated: float | None = 0.6, **more: Any) -> AuditReport:
    return audit(rule, P, IID(Q, n=1), stated=stated, **more)


def test_a_q_that_was_lost_is_slower_than_stated() -> None:
    """Every draft is replaced by a draw from p, so the text is correct."""
    report = judged(lost)
    assert report.verdict is Verdict.SLOWER_THAN_STATED
    assert report.total_variation < 1e-12
    assert report.acceptance == pytest.approx(0.5 * 0.1 + 0.3 * 0.6 + 0.2 * 0.3, abs=1e-12)


@pytest.mark.parametrize("how", [AuditSettings(), AuditSettings(5_000, max_paths=0)])
def test_the_stated_acceptance_is_held_exactly_or_against_chance(how: AuditSettings) -> None:
    assert judged(whole, 0.6, settings=how).passed
    assert judged(whole, 0.3, settings=how).passed
    found = judged(whole, 0.65, settings=how)
    assert found.verdict is Verdict.SLOWER_THAN_STATED and "Stated: 0.65." in str(found)
    assert not found.passed


def test_tokens_a_round_are_stated_too() -> None:
    given = audit_rounds(token_rule, *models(3, 3), DraftedPaths(1, 2)).tokens
    how: Any = {"stated": given + 1e-3}
    report = audit_rounds(token_rule, *models(3, 3), DraftedPaths(1, 2), **how)
    assert report.verdict is Verdict.SLOWER_THAN_STATED
    with pytest.raises(InvalidInputError, match="stated"):
        audit_rounds(token_rule, *models(3, 3), DraftedPaths(1, 2), stated=-1.0)


def test_a_verdict_in_one_line() -> None:
    words = ("audit", "naive", "--vocab-size", 3, "--brief")
    printed = done(*words)
    assert printed.startswith("LOSSLESS Naive on IID(n=1): total variation")
    assert len(printed.splitlines()) == 1
    slower = done(*words, "--stated", 0.99, status=1)
    assert slower.startswith("SLOWER_THAN_STATED") and "of 0.99 stated" in slower


def test_what_a_solver_accepts_can_be_stated() -> None:
    words = "audit", "recursive-rejection", "--n", 2, "--brief", "--stated"
    assert "LOSSLESS" in done(*words, "SpecInfer")
    assert "SLOWER_THAN_STATED" in done(*words, "martingale", status=1)
    assert "--stated must be a number with --length, got 'martingale'" in refused(
        "audit", "mine.py:rule", "--length", 2, "--stated", "martingale"
    )
    assert "-1" in refused(*words, "-1")
    assert "best" in refused(*words, "best")
