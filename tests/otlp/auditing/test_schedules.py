"""Schedules: those that depend on drawn tokens fail and are named, others pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from otlp import audit_rounds
from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, DraftedTree, Verdict
from otlp.errors import InvalidInputError, SizeLimitError
from tests.otlp.auditing.shipped_rules import token_rule

pytestmark = pytest.mark.usefixtures("few_repetitions")

P = np.array([0.7, 0.3])
TARGET = [P, np.array([P, P]), np.array([[P, P], [P, P]])]
DRAFT = [np.array([0.5, 0.5]), np.array([[0.95, 0.05], [0.5, 0.5]])]
"""The draft is certain of the next token after a, but not after b."""

COST = np.array([0.0, 0.6, 0.8])
"""Cost of verifying 0, 1 and 2 tokens; the second token costs less than the first."""


def survival(q: Any) -> Any:
    """Return the probability that each prefix passes, estimated from q; shape (2, L)."""
    return np.cumprod(q.max(axis=-1), axis=-1)


def gains(q: Any) -> Any:
    """Return expected tokens minus cost of verifying 0, 1, ..., L tokens of each request."""
    return np.pad(np.cumsum(survival(q), axis=-1), ((0, 0), (1, 0))) - COST


def global_search(x: Any, q: Any, earlier: Any) -> Any:
    """Return the best of all lengths; it depends on the draft confidence after each token."""
    return gains(q).argmax(axis=-1)


def early_stop(x: Any, q: Any, earlier: Any) -> Any:
    """Return the first length after which one more token does not pay; later laws are not used."""
    falls = np.diff(gains(q), axis=-1) < 0
    return np.where(falls.any(axis=-1), falls.argmax(axis=-1), falls.shape[-1])


def best_of_both(budget: int, q: Any) -> Any:
    """Spend a budget on the most likely prefixes of all requests."""
    score = survival(q) - 1e-9 * np.arange(q.shape[1])
    place = np.unravel_index(np.argsort(-score, axis=None, kind="stable")[:budget], score.shape)
    return np.bincount(place[0], minlength=len(q))


def fixed_budget(x: Any, q: Any, earlier: Any) -> Any:
    return best_of_both(2, q)


def fresh_budget(x: Any, q: Any, earlier: Any) -> Any:
    """Compute the budget from the drafts of both requests in the same step."""
    return best_of_both(int(global_search(x, q, earlier).sum()), q)


def by_budget(age: int) -> Any:
    """Verify one token each, if all tokens drafted a given number of steps before were a."""

    def stale(x: Any, q: Any, earlier: Any) -> Any:
        steps = [*earlier, (x, q)]
        return np.full(2, int((steps[-1 - age][0] == 0).all()) if len(steps) > age else 1)

    return stale


def each_looks_at_the_other(x: Any, q: Any, earlier: Any) -> Any:
    return np.where(x[::-1, 0] == 0, 1, 0)


def looks(x: Any, q: Any, earlier: Any) -> Any:
    return (x[:, 0] == 0).astype(int)


def whole(x: Any, q: Any, earlier: Any) -> Any:
    return np.full(2, x.shape[1])


@cache
def judged(
    schedule: Any, rule: Callable[..., Any] = token_rule, length: int = 2, **more: Any
) -> AuditReport:
    path = DraftedPaths(1, length)
    return audit_rounds(rule, TARGET, DRAFT, path, schedule=schedule, **more)


def first_token(report: AuditReport) -> Any:
    """Return the law of the first token of the first request."""
    return report.output.reshape(2, -1).sum(axis=1)


@pytest.mark.parametrize(
    ("schedule", "printed"),
    [
        (global_search, "token 1 of request 2 is verified if"),
        pytest.param(fresh_budget, "is verified if the drafts are", marks=pytest.mark.slow),
        (looks, "token 1 of request 2 is verified if the drafts are [[0, 0], [0, 0]]"),
        (each_looks_at_the_other, "uses the drafts of the other request"),
    ],
)
def test_what_looks_at_what_was_drawn_is_anticipation(schedule: Any, printed: str) -> None:
    report = judged(schedule)
    assert (report.verdict, report.method) == (Verdict.ANTICIPATION, "enumeration")
    assert printed in report.anticipation and report.anticipation in str(report)


@pytest.mark.parametrize("schedule", [early_stop, fixed_budget, whole])
def test_what_does_not_is_lossless(schedule: Any) -> None:
    report = judged(schedule)
    assert (report.verdict, report.method) == (Verdict.LOSSLESS, "enumeration")
    assert 1.0 <= report.tokens <= 3.0


def test_with_a_pencil() -> None:
    """Half of the a drafts are kept, and the target draws for b: 0.5 + 0.5 * 0.7 = 0.85."""
    np.testing.assert_allclose(first_token(judged(global_search)), [0.85, 0.15], atol=1e-12)
    np.testing.assert_allclose(first_token(judged(early_stop)), [0.7, 0.3], atol=1e-12)


def test_two_requests_show_what_one_does_not() -> None:
    """Each text is correct by itself; together the texts are not independent."""
    report = judged(each_looks_at_the_other)
    np.testing.assert_allclose(first_token(report), [0.7, 0.3], atol=1e-12)
    assert report.total_variation > 0.01


def test_a_budget_by_its_own_drafts_and_by_those_of_steps_before() -> None:
    assert judged(by_budget(0), length=1, steps=2).verdict is Verdict.ANTICIPATION
    assert judged(by_budget(1), length=1, steps=2).verdict is Verdict.LOSSLESS


@pytest.mark.slow
@pytest.mark.long
def test_a_budget_of_two_steps_before() -> None:
    assert judged(by_budget(2), length=1, steps=3).verdict is Verdict.LOSSLESS


def test_what_is_cut_after_it_was_verified() -> None:
    """min(accepted, confident prefix), with the confidence of drawn tokens: the rule is wrong."""

    def cut(x: Any, p: Any, q: Any, rng: Any) -> Any:
        kept = 1 if x[0, 0] == 0 else 0
        text = token_rule(x, p, q, rng)
        return text if kept or len(text) == 1 else [rng.choice(2, p=p[0, 0])]

    assert judged(whole, cut).verdict is Verdict.NOT_LOSSLESS


def test_a_wrong_rule_is_not_laid_to_the_schedule() -> None:
    def first(x: Any, p: Any, q: Any, rng: Any) -> Any:
        return x[0, :1]

    assert judged(looks, first).verdict is Verdict.NOT_LOSSLESS


def test_a_schedule_that_remembers_by_itself_is_sampled() -> None:
    count = iter(range(10**9))

    def remembers(x: Any, q: Any, earlier: Any) -> Any:
        return np.full(2, next(count) % 2 + 1)

    report = judged(remembers, settings=AuditSettings(1_000))
    assert (report.verdict, report.method) == (Verdict.NOT_REJECTED, "sampling")


@pytest.mark.parametrize(
    ("schedule", "printed"),
    [
        (lambda x, q, earlier: [3, 0], r"returns [3, 0], not lengths from 0 to 2"),
        (lambda x, q, earlier: [-1, 0], "returns [-1, 0]"),
        (lambda x, q, earlier: [1], "not 2 lengths"),
        (lambda x, q, earlier: [0.5, 1.0], "not 2 lengths"),
        (lambda x, q, earlier: 1 / 0, "the schedule raises ZeroDivisionError"),
    ],
)
def test_lengths_that_are_none(schedule: Any, printed: str) -> None:
    for how in (AuditSettings(max_paths=20_000), AuditSettings(1_000, max_paths=0)):
        report = judged(schedule, settings=how)
        assert report.verdict is Verdict.RULE_FAILED
        assert printed in next(iter(report.failures))


@pytest.mark.parametrize(
    "more",
    [
        {"schedule": 3},
        {"schedule": whole, "batch": 2},
        {"schedule": whole, "drafter": whole},
        {"schedule": whole, "drafts": DraftedTree([0])},
        {"schedule": whole, "steps": 0},
        {"steps": 2},
    ],
)
def test_bad_input_is_named(more: dict[str, Any]) -> None:
    given: dict[str, Any] = {"drafts": DraftedPaths(1, 2), **more}
    with pytest.raises(InvalidInputError):
        audit_rounds(token_rule, TARGET, DRAFT, **given)


def test_too_many_texts_are_refused() -> None:
    with pytest.raises(SizeLimitError, match="fewer steps"):
        judged(whole, steps=4)
