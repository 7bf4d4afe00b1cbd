"""Rules with arguments in other orders, or with other names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otlp
from otlp.auditing import DraftedPaths
from otlp.auditing.argument_order import LOGARITHMS, NAMES, read_sampler
from otlp.errors import InvalidInputError
from tests.otlp.auditing.rules import leviathan

pytestmark = pytest.mark.usefixtures("few_repetitions")

P, Q = np.random.default_rng(3).dirichlet(np.ones(4), size=2)


def vllm_style(draft_token_ids: Any, draft_probs: Any, target_probs: Any, rng: Any) -> Any:
    return leviathan(draft_token_ids, target_probs, draft_probs, rng)


def unknown_names(a: Any, b: Any, c: Any, d: Any) -> Any:
    return leviathan(a, b, c, d)


def other_convention(x: Any, b: Any, c: Any, d: Any) -> Any:
    return leviathan(x, c, b, d)


def audit(rule: Any) -> otlp.auditing.AuditReport:
    return otlp.audit(rule, P, otlp.IID(Q, 1))


@pytest.mark.parametrize("rule", [leviathan, vllm_style, unknown_names])
def test_a_right_rule_is_right_in_any_order(rule: Any) -> None:
    report = audit(rule)
    assert report.verdict.name == "LOSSLESS"
    assert report.reading in str(report)
    assert not report.lossless_swapped


def test_how_they_were_read_is_said() -> None:
    assert audit(leviathan).reading == ""
    assert "by name: draft_token_ids is draft_tokens, draft_probs is q" in audit(vllm_style).reading
    assert "by position: a is draft_tokens, b is p" in audit(unknown_names).reading


def test_a_rule_that_is_right_with_p_and_q_swapped_is_told_so() -> None:
    report = audit(other_convention)
    assert not report.passed and report.lossless_swapped
    assert "With p and q swapped the rule passes" in str(report)


def test_a_wrong_rule_is_wrong_in_both_orders() -> None:
    report = audit(lambda draft_tokens, p, q, rng: int(draft_tokens[0]))
    assert not report.passed and not report.lossless_swapped


def softmax(logits: Any) -> Any:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def of_logits(draft_token_ids: Any, draft_logits: Any, target_logits: Any, rng: Any) -> Any:
    return leviathan(draft_token_ids, softmax(target_logits), softmax(draft_logits), rng)


def of_mixed(draft_tokens: Any, target_logprobs: Any, q: Any, rng: Any) -> Any:
    return leviathan(draft_tokens, np.exp(target_logprobs), q, rng)


@pytest.mark.parametrize("rule", [of_logits, of_mixed])
def test_logarithms_are_handed_where_names_say_so(rule: Any) -> None:
    """Tokens of probability zero are included."""
    q = np.array([0.5, 0.0, 0.2, 0.3])
    for p in (P, np.array([0.0, 0.3, 0.3, 0.4])):
        report = otlp.audit(rule, p, otlp.IID(q, 1))
        assert report.verdict.name == "LOSSLESS"
    assert "is log p" in report.reading and report.reading in str(report)
    assert ("is log q" in report.reading) == (rule is of_logits)


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (lambda draft_tokens, logits, q, rng: 0, "logits would receive p by position"),
        (
            lambda draft_tokens, target_scores, q, rng: 0,
            "target_scores would receive p by position",
        ),
        (lambda draft_tokens, p, q, temperature: 0, "temperature would receive rng by position"),
        (lambda draft_tokens, top_k, q, rng: 0, "top_k would receive p by position"),
        (lambda draft_tokens, target_probs, target_logits, rng: 0, "target_logits would receive"),
        (lambda x, draft_law_given, given, rng: 0, "draft_law_given would receive p by position"),
        (
            lambda draft_tokens, p, q, target_tokens: 0,
            "target_tokens would receive rng by position",
        ),
    ],
)
def test_names_that_say_other_things_are_refused(rule: Any, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        audit(rule)


def test_samplers_are_handed_what_their_names_say() -> None:
    given: list[Any] = []
    for name in ("q", "draft_logits", "x"):
        sampler = eval(f"lambda {name}, rng: given.append({name})", {"given": given})
        read_sampler(sampler)(Q, None)
    np.testing.assert_allclose(given, [Q, np.log(Q), Q])
    with pytest.raises(InvalidInputError, match="temperature would receive q by position"):
        read_sampler(lambda temperature, rng: 0)


def test_names_are_of_one_role() -> None:
    every = [name for names in (*NAMES.values(), *LOGARITHMS.values()) for name in names]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    "rule",
    [
        lambda p: 0,
        lambda draft_tokens, p: 0,
        lambda draft_tokens, p, q, rng, five: 0,
        lambda draft_tokens, p, q, *, rng: 0,
    ],
)
def test_what_cannot_be_called_is_refused(rule: Any) -> None:
    with pytest.raises(InvalidInputError, match="must accept"):
        audit(rule)


def test_engines_own_functions_are_named() -> None:
    def rejection_sample(draft_token_ids: Any, cu_num_draft_tokens: Any, draft_probs: Any) -> Any:
        return 0

    with pytest.raises(InvalidInputError, match="audit-engine vllm-v1"):
        audit(rejection_sample)


def test_tensors_are_handed_where_they_are_annotated_and_torch_draws() -> None:
    pytest.importorskip("torch")
    import torch

    def rule(
        draft_token_ids: torch.Tensor,
        draft_probs: torch.Tensor,
        target_probs: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> Any:
        token = draft_token_ids[0]
        if torch.rand(()) < target_probs[token] / draft_probs[token]:
            return token
        left = (target_probs - draft_probs).clamp(min=0)
        return torch.multinomial(left / left.sum(), 1, generator=generator)[0]

    assert audit(rule).verdict.name == "LOSSLESS"


def test_rules_over_rounds_are_read_alike() -> None:
    draft, target = otlp.decode.random_pair(2, 2, np.random.default_rng(0))

    def rule(draft_token_ids: Any, draft_probs: Any, target_probs: Any, rng: Any) -> Any:
        p, q, token = target_probs[0], draft_probs[0], draft_token_ids[0, 0]
        if rng.random() * q[0, token] < p[0, token]:
            return [token, rng.choice(2, p=p[1])]
        left = np.maximum(p[0] - q[0], 0)
        return [rng.choice(2, p=left / left.sum())]

    given = target.tables, draft.tables, DraftedPaths(1, 1)
    assert otlp.audit_rounds(rule, *given).verdict.name == "LOSSLESS"
