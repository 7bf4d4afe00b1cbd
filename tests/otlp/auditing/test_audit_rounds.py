"""Audits of rounds: correct rules, and reconstructions of mistakes in released software.

The mistakes are reconstructed from reports, with as little code as possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otlp import audit_rounds
from otlp.auditing import AuditSettings, DraftedPaths, DraftedTree, Verdict
from otlp.errors import InvalidInputError, SizeLimitError
from tests.otlp.auditing.shipped_rules import (
    ONE,
    RIGHT,
    SHIPPED,
    looks_first,
    models,
    own_token_alone,
    products_of_uniforms,
    token_rule,
)

pytestmark = pytest.mark.usefixtures("few_repetitions")


def test_speculative_sampling_is_lossless() -> None:
    report = audit_rounds(token_rule, *models(3, 3), DraftedPaths(1, 2))
    assert report.verdict is Verdict.LOSSLESS
    assert report.total_variation < 1e-14
    assert 1.0 < report.tokens < 3.0
    for what in ("token_rule", "one path of 2 tokens", "3 tokens", "exact by enumeration"):
        assert what in str(report)


def test_a_path_that_is_cut_by_a_look_at_what_was_drawn() -> None:
    """With p = (1/2, 1/2) and q = (4/5, 1/5) the text begins with probabilities (3/5, 2/5).

    The fix: treat "no draft" as a separate token, with p = 0 and the mass of the cut paths.
    """
    target, draft = [np.array([0.5, 0.5]), np.full((2, 2), 0.5)], [np.array([0.8, 0.2])]
    wrong = audit_rounds(looks_first, target, draft, DraftedPaths(1, 1))
    assert wrong.verdict is Verdict.NOT_LOSSLESS
    np.testing.assert_allclose(wrong.output.sum(axis=1), [0.6, 0.4], atol=1e-12)

    def cut(tables: Any, rng: Any) -> Any:
        return [0 if rng.random() < 0.8 else 2]

    wide = np.array([[0.5, 0.5, 0.0]] * 3)
    for told, verdict in (
        ([0.8, 0.2, 0.0], Verdict.DRAFTS_DIFFER),
        ([0.8, 0.0, 0.2], Verdict.LOSSLESS),
    ):
        given = [wide[0], wide], [np.array(told)]
        found = audit_rounds(token_rule, *given, DraftedPaths(1, 1), sampler=cut)
        assert found.verdict is verdict


@pytest.mark.parametrize("name", SHIPPED)
def test_mistakes_that_were_shipped_are_found(name: str) -> None:
    rule, drafts, more = SHIPPED[name]
    length = getattr(drafts, "length", 1)
    size = 2 if more else 3  # samplers have many outcomes
    how = AuditSettings(samples=2_000)
    report = audit_rounds(rule, *models(size, length + 1, seed=5), drafts, settings=how, **more)
    if rule is products_of_uniforms:
        assert "multiplies two random numbers" in report.why_sampled
    else:
        assert report.method == "enumeration"
    assert report.verdict is (Verdict.DRAFTS_DIFFER if more else Verdict.NOT_LOSSLESS)
    off = report.drafts.total_variation if more else report.total_variation
    assert off > 1e-3


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_are_lossless(name: str) -> None:
    rule, drafts, more = RIGHT[name]
    length = getattr(drafts, "length", 1)
    report = audit_rounds(rule, *models(4, length + 1, seed=2), drafts, **more)
    assert (report.method, report.verdict) == ("enumeration", Verdict.LOSSLESS)


def test_a_residual_without_the_drafted_token_alone_is_right_for_a_point_mass() -> None:
    target, sure = models(3, 2, seed=4)[0], [np.array([0.0, 1.0, 0.0])]
    assert audit_rounds(own_token_alone, target, sure, ONE).verdict is Verdict.LOSSLESS


def test_a_sample_finds_a_mistake_in_batches() -> None:
    """Every draft is accepted: a large error, sampled because a normal number is drawn too."""

    def accepts_all(x: Any, p: Any, q: Any, rng: Any) -> Any:
        rng.normal()
        bonus = (np.cumsum(p[:, 0, -1], 1) < rng.random((len(x), 1))).sum(1)
        return np.column_stack([x[:, 0], bonus])

    report = audit_rounds(
        accepts_all,
        *models(3, 3),
        DraftedPaths(1, 2),
        batch=500,
        settings=AuditSettings(samples=5_000),
    )
    assert report.verdict is Verdict.NOT_LOSSLESS
    assert "rng.normal" in report.why_sampled
    assert report.test.detectable < 0.1


def test_a_sample_of_a_right_rule_is_not_rejected() -> None:
    report = audit_rounds(
        token_rule,
        *models(3, 3),
        DraftedPaths(1, 2),
        settings=AuditSettings(max_paths=0, samples=4_000),
    )
    assert report.verdict is Verdict.NOT_REJECTED
    assert report.interval[0] == 0.0
    exact = audit_rounds(token_rule, *models(3, 3), DraftedPaths(1, 2))
    assert abs(report.tokens - exact.tokens) < 2.0 * report.tokens_error < 0.1
    assert "± " in str(report)


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ([], "0 tokens"),
        ([0, 0, 0, 0], "4 tokens"),
        ([7], "outside the vocabulary"),
        ([0, -1, 0], "after the padding"),
        (0, "not a list of tokens"),
        ([0.5], "not a list of tokens"),
    ],
)
def test_outputs_that_are_no_tokens(output: Any, printed: str) -> None:
    report = audit_rounds(lambda *given: output, *models(3, 3), DraftedPaths(1, 2))
    assert report.verdict is Verdict.RULE_FAILED
    assert printed in next(iter(report.failures))


def test_bad_input_is_named() -> None:
    target, draft = models(3, 3)
    paths = DraftedPaths(1, 2)
    for wrong, kind in [
        (lambda: DraftedTree([1]), InvalidInputError),
        (lambda: DraftedTree([]), InvalidInputError),
        (lambda: DraftedTree([0], "some"), InvalidInputError),
        (lambda: DraftedPaths(0, 2), InvalidInputError),
        (lambda: audit_rounds(token_rule, target[:1], draft, paths), InvalidInputError),
        (lambda: audit_rounds(token_rule, target, draft[:1], paths), InvalidInputError),
        (lambda: audit_rounds(token_rule, target, draft, [0, 0]), InvalidInputError),
        (lambda: audit_rounds(3, target, draft, paths), InvalidInputError),
        (
            lambda: audit_rounds(
                token_rule, target, draft, paths, settings=AuditSettings(samples=3)
            ),
            InvalidInputError,
        ),
        (lambda: audit_rounds(token_rule, *models(101, 3), DraftedPaths(1, 2)), SizeLimitError),
    ]:
        with pytest.raises(kind):
            wrong()
