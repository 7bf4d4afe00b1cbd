"""Rules that look correct under enumeration but are wrong in real calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otlp
from otlp.auditing import AuditSettings, DraftedPaths, Verdict, audit, audit_rounds
from otlp.testing import assert_lossless
from tests.otlp.auditing import rules
from tests.otlp.auditing.rules import P, Q
from tests.otlp.auditing.shipped_rules import models, token_rule


def tells_them_apart(d: Any, p: Any, q: Any, rng: Any) -> Any:
    return 0 if type(rng) is np.random.Generator else rules.leviathan(d, p, q, rng)


def refused_by_numpy(d: Any, p: Any, q: Any, rng: Any) -> Any:
    rng.random(dtype=np.float16)
    return rules.leviathan(d, p, q, rng)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [(tells_them_apart, Verdict.NOT_LOSSLESS), (refused_by_numpy, Verdict.RULE_FAILED)],
)
def test_a_real_generator_answers_otherwise(
    rule: Any, verdict: Verdict, request: pytest.FixtureRequest
) -> None:
    if verdict is Verdict.RULE_FAILED:
        request.getfixturevalue("few_repetitions")
    report = audit(rule, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.verdict is verdict
    if verdict is Verdict.NOT_LOSSLESS:
        assert "do not follow the enumerated distribution" in report.why_sampled
        assert report.size == 10_000  # the number of calls that detected the error


@pytest.fixture
def some_calls(few_repetitions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few repetitions, but enough real calls to detect rows that mix."""
    monkeypatch.setattr("otlp.auditing.real_calls.CALLS", 500)


def in_rows(seen: Any) -> Any:
    """Return a batched rule that verifies row i of p, q and drafts with other rows."""

    def rule(x: Any, p: Any, q: Any, rng: Any) -> Any:
        length = x.shape[2] + 1
        each = zip(*seen(x, p, q), strict=True)
        rows = [token_rule(drafts, target, draft, rng) for drafts, target, draft in each]
        return np.array([[*row, *[-1] * (length - len(row))] for row in rows])

    return rule


def first_law(x: Any, p: Any, q: Any) -> Any:
    return x, np.broadcast_to(p[:1], p.shape), q


def drafts_of_the_row_before(x: Any, p: Any, q: Any) -> Any:
    return np.roll(x, 1, axis=0), p, q


def only_the_root_of_the_first(x: Any, p: Any, q: Any) -> Any:
    mixed = p.copy()
    mixed[:, :, 0] = p[:1, :, 0]
    return x, mixed, q


@pytest.mark.usefixtures("some_calls")
@pytest.mark.parametrize("batch", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "seen",
    [first_law, drafts_of_the_row_before, only_the_root_of_the_first],
    ids=lambda f: f.__name__,
)
def test_rows_of_a_batch_that_mix(seen: Any, batch: int) -> None:
    one = DraftedPaths(1, 1)
    report = audit_rounds(
        in_rows(seen), *models(3, 2), one, batch=batch, settings=AuditSettings(samples=1_000)
    )
    assert report.verdict is Verdict.NOT_LOSSLESS
    assert "real calls do not follow" in report.why_sampled


def test_rows_of_a_batch_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otlp.auditing.enumeration.REPETITIONS", 20)
    right = in_rows(lambda *given: given)
    report = audit_rounds(right, *models(3, 2), DraftedPaths(1, 1), batch=5)
    assert report.verdict is Verdict.LOSSLESS
    assert [test.samples for test in report.real_tests.values()] == [6_000, 6_000, 4_000]
    assert report.real_tests["outputs"].detectable < 0.06


@pytest.mark.usefixtures("some_calls")
def test_assert_lossless_plays_batches() -> None:
    how: dict[str, Any] = {"vocab_sizes": [3], "dtypes": ["float64"], "batch": 4}
    how["settings"] = AuditSettings(1_000, max_paths=20_000)
    assert_lossless(in_rows(lambda *given: given), DraftedPaths(1, 1), **how)
    with pytest.raises(AssertionError, match="NOT_LOSSLESS"):
        assert_lossless(in_rows(first_law), DraftedPaths(1, 1), **how)


def test_what_is_too_rare_to_follow_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The omitted paths have total probability 1e-8; the rounding tolerance is 2^-20."""
    monkeypatch.setattr("otlp.auditing.enumeration.REPETITIONS", 20)

    def patient(d: Any, p: Any, q: Any, rng: Any) -> Any:
        while rng.random() < 0.5:
            pass
        return rules.leviathan(d, p, q, rng)

    report = audit(patient, P, otlp.IID(Q, 1))
    assert report.verdict is Verdict.LOSSLESS
    assert "10,000 calls with real generators follow this law" in str(report)


def test_torch_is_played_as_it_is() -> None:
    """A seed set by compiled code is not seen, and gives the same number in each call."""
    torch = pytest.importorskip("torch")

    def rule(d: Any, p: Any, q: Any, rng: Any) -> Any:
        list(map(torch.default_generator.manual_seed, [3]))
        return int(torch.multinomial(torch.tensor(p), 1))

    report = audit(rule, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.verdict is Verdict.NOT_LOSSLESS
