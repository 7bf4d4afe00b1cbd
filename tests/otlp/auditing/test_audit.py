"""The auditor passes correct rules and detects wrong ones, exactly and by sampling.

Every audit here has false-alarm rate 1e-6 and a fixed seed. Fewer than 100 audits are sampled, so
a correct auditor would fail this file for one seed in 10,000.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.auditing import AuditSettings, Verdict, audit
from otlp.auditing.draft_check import check_drafts
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.solvers import SOLVERS
from tests import instances
from tests.examples import examples
from tests.otlp.auditing import hostile, rules
from tests.otlp.auditing.rules import P, Q
from tests.otlp.auditing.ways import BOTH, EXACT, SAMPLED

pytestmark = pytest.mark.usefixtures("few_repetitions")


RIGHT = {
    "leviathan": (rules.leviathan, otlp.IID(Q, 1)),
    "transformers": (rules.transformers_style, otlp.IID(Q, 1)),
    "inversion": (rules.inversion_style, otlp.IID(Q, 1)),
    "exponential race": (rules.vllm_style, otlp.IID(Q, 1)),
    "eagle": (rules.eagle_style, otlp.IID(Q, 3)),
    "eagle without replacement": (
        rules.eagle_style_without_replacement, otlp.WithoutReplacement(Q, 3),
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_pass(name: str, max_paths: int) -> None:
    rule, drafts = RIGHT[name]
    # an interval without 0 is a false alarm, with rate 1e-6
    report = audit(
        rule,
        P,
        drafts,
        settings=AuditSettings(max_paths=max_paths, samples=5_000, confidence=1.0 - 1e-6),
    )
    assert report.passed
    if max_paths:
        assert report.verdict is Verdict.LOSSLESS
        assert report.total_variation < 1e-14
        np.testing.assert_allclose(report.output, P, rtol=0.0, atol=1e-14)
    else:
        assert report.verdict is Verdict.NOT_REJECTED
        assert report.interval[0] <= 0.0 < report.interval[1] < 0.1


WRONG = {
    "each in turn": (rules.each_in_turn, otlp.IID(Q, 2), Verdict.NOT_LOSSLESS),
    "fed without replacement": (
        rules.eagle_style, otlp.WithoutReplacement(Q, 3), Verdict.NOT_LOSSLESS,
    ),
    "unnormalised choice": (rules.unnormalised_choice, otlp.IID(Q, 1), Verdict.RULE_FAILED),
    "unnormalised search": (rules.unnormalised_search, otlp.IID(Q, 1), Verdict.RULE_FAILED),
    "unnormalised multinomial": (
        rules.unnormalised_multinomial, otlp.IID(Q, 1), Verdict.NOT_LOSSLESS,
    ),
    "unnormalised default": (rules.unnormalised_default, otlp.IID(Q, 1), Verdict.NOT_LOSSLESS),
    "forgets to return": (rules.forgets_to_return, otlp.IID(Q, 2), Verdict.RULE_FAILED),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_caught_and_sampling_agrees_with_the_exact_law(name: str) -> None:
    rule, drafts, verdict = WRONG[name]
    exact, sampled = (
        audit(rule, P, drafts, settings=AuditSettings(max_paths=max_paths, samples=5_000))
        for max_paths in (EXACT, SAMPLED)
    )
    for report in (exact, sampled):
        assert report.verdict is verdict and not report.passed
        assert report.verdict.name in str(report)
    low, high = sampled.interval
    assert low <= exact.total_variation <= high
    np.testing.assert_allclose(sampled.output, exact.output, atol=5.0 * np.sqrt(0.25 / 5_000))
    assert abs(sampled.acceptance - exact.acceptance) < 5.0 * np.sqrt(0.25 / 5_000)


def test_exact_law_of_a_wrong_rule_in_closed_form() -> None:
    report = audit(rules.each_in_turn, P, otlp.IID(Q, 2))
    accepted = np.minimum(P, Q)
    rejected = 1.0 - accepted.sum()
    residual = np.maximum(P - Q, 0.0)
    expected = accepted * (1.0 + rejected) + rejected**2 * residual / residual.sum()
    np.testing.assert_allclose(report.output, expected, rtol=0.0, atol=1e-15)
    assert report.total_variation == pytest.approx(0.5 * np.abs(expected - P).sum(), abs=1e-15)
    worst = report.worst_texts(1)[0][0][0]
    assert worst == np.argmax(np.abs(expected - P))


@given(instances.iid_problems(max_n=2, max_vocab=4))
@examples(20)
def test_recursive_rejection_is_lossless_on_any_problem(problem: otlp.Problem) -> None:
    """Ties, zeros, tiny masses, p = q: rounding must not cause a warning."""
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("otlp.auditing.enumeration.REPETITIONS", 20)  # of one rule, 20 times
        patch.setattr("otlp.auditing.real_calls.CALLS", 200)
        report = audit(guarded_eagle, problem.target, problem.drafts)
    assert report.verdict is Verdict.LOSSLESS, str(report)


def guarded_eagle(draft_tokens: Any, p: Any, q: Any, rng: Any) -> int:
    """Recursive rejection sampling that handles an empty residual."""
    for token in draft_tokens:
        if rng.random() * q[token] < p[token]:
            return int(token)
        left = np.maximum(p - q, 0.0)
        p = left / left.sum() if left.sum() > 0.0 else p
    return int(rng.choice(len(p), p=p))


def test_a_sampler_is_enumerated_with_the_rule() -> None:
    sampler = lambda rng: rules.honest(Q, rng)  # noqa: E731
    report = audit(rules.eagle_style, P, sampler, declared=otlp.IID(Q, 2))
    assert report.verdict is Verdict.LOSSLESS
    assert report.drafts is not None and report.drafts.agrees
    assert report.drafts.total_variation < 1e-15
    assert report.drafts.repeats == pytest.approx(report.drafts.expected_repeats)


@BOTH
def test_argmax_drafts_with_a_softmax_q(max_paths: int) -> None:
    sampler, how = lambda rng: [int(np.argmax(Q))], AuditSettings(5_000, max_paths=max_paths)
    report = audit(rules.leviathan, P, sampler, declared=otlp.IID(Q, 1), settings=how)
    assert report.verdict is Verdict.DRAFTS_DIFFER
    assert report.total_variation > 0.1
    reported = audit(
        rules.leviathan, P, otlp.Explicit([[0]], [1.0], vocab_size=5), reported_draft=Q
    )
    assert reported.verdict is Verdict.NOT_LOSSLESS
    assert reported.reported_draft_error == pytest.approx(0.7)
    assert "The q passed to the rule differs" in str(reported)


@BOTH
def test_drafts_without_replacement_that_are_said_to_be_with(max_paths: int) -> None:
    drafts, declared = otlp.WithoutReplacement(Q, 2), otlp.IID(Q, 2)
    how = AuditSettings(5_000, max_paths=max_paths)
    report = audit(rules.eagle_style, P, drafts, declared=declared, settings=how)
    other = audit(rules.eagle_style, P, declared, declared=drafts, settings=how)
    assert report.verdict is other.verdict is Verdict.DRAFTS_DIFFER
    assert report.drafts.repeats == 0.0 < report.drafts.expected_repeats
    assert other.drafts.impossible > 0.0
    assert len(set(other.drafts.example)) == 1


def test_what_has_no_finite_set_of_outcomes_is_sampled() -> None:
    report = audit(rules.gamma_race, P, otlp.IID(Q, 1), settings=AuditSettings(samples=5_000))
    assert report.verdict is Verdict.NOT_REJECTED
    assert "rng.standard_gamma" in report.why_sampled
    assert "5,000" in str(report)


DRAFTS = {
    "iid": otlp.IID(Q, 3),
    "without replacement": otlp.WithoutReplacement(Q, 3),
    "independent": otlp.Independent([Q, P, Q]),
    "greedy": otlp.Greedy(Q, 3),
}


@pytest.mark.parametrize("declared", DRAFTS)
@pytest.mark.parametrize("real", DRAFTS)
def test_draft_check_tells_the_schemes_apart(real: str, declared: str) -> None:
    rng = np.random.default_rng(7)
    check = check_drafts(DRAFTS[real].sample(rng, 5_000), DRAFTS[declared], 1e-6, rng)
    assert check.agrees == (real == declared)


def large_schemes() -> dict[str, otlp.DraftScheme]:
    rng = np.random.default_rng(11)
    q, other = (rng.dirichlet(np.full(1000, 0.05)) for _ in range(2))
    return {
        "iid": otlp.IID(q, 3),
        "without replacement": otlp.WithoutReplacement(q, 3),
        "independent": otlp.Independent([q, other, q]),
    }


@pytest.mark.parametrize("declared", large_schemes())
@pytest.mark.parametrize("real", large_schemes())
def test_draft_check_without_listing_tuples(real: str, declared: str) -> None:
    schemes = large_schemes()
    assert schemes[declared].tuple_count() > 200_000
    rng = np.random.default_rng(7)
    check = check_drafts(schemes[real].sample(rng, 20_000), schemes[declared], 1e-6, rng)
    assert "tuples" not in check.tests
    assert check.agrees == (real == declared)


@pytest.mark.parametrize(
    ("p", "drafts"),
    [
        ([1.0], otlp.IID([1.0], 3)),
        (Q, otlp.IID(Q, 2)),
        ([0.5, 0.5, 0.0, 0.0], otlp.IID([0.0, 0.0, 0.3, 0.7], 2)),
        ([0.5, 0.5 - 1e-300, 1e-300], otlp.IID([1e-300, 0.5, 0.5], 2)),
        ([0.3, 0.7], otlp.IID([0.6, 0.4], 8)),
    ],
    ids=["one token", "p equals q", "disjoint", "tiny", "many drafts"],
)
@BOTH
def test_edges(p: Any, drafts: otlp.DraftScheme, max_paths: int) -> None:
    report = audit(
        guarded_eagle, p, drafts, settings=AuditSettings(max_paths=max_paths, samples=2_000)
    )
    assert report.passed, str(report)


def test_a_law_that_stays_open_is_sampled() -> None:
    """Paths that are too unlikely to enumerate exceed the tolerance, so nothing is proved."""

    def patient(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        while rng.random() < 0.1:
            pass
        return rng.choice(len(p), p=p)

    report = audit(patient, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000, tolerance=0.0))
    assert report.verdict is Verdict.NOT_REJECTED
    assert "up to" in report.why_sampled
    assert audit(patient, P, otlp.IID(Q, 1)).verdict is Verdict.LOSSLESS


def test_many_drafts_have_a_finite_chance_of_a_repeat() -> None:
    rng = np.random.default_rng(3)
    drafts = otlp.IID(np.full(5000, 1.0 / 5000.0), 300)
    check = check_drafts(drafts.sample(rng, 2_000), drafts, 1e-6, rng)
    assert check.agrees
    assert check.expected_repeats == pytest.approx(1.0 - np.prod(1.0 - np.arange(300) / 5000.0))


def test_a_token_of_probability_zero_is_proof() -> None:
    def rarely_wrong(d: Any, p: Any, q: Any, rng: Any) -> Any:
        return 2 if rng.random() < 1e-2 else rng.choice(3, p=p)

    pair = [0.5, 0.5, 0.0], otlp.IID([0.5, 0.3, 0.2], 1)
    report = audit(rarely_wrong, *pair, settings=AuditSettings(max_paths=SAMPLED, samples=2_000))
    assert report.verdict is Verdict.NOT_LOSSLESS
    assert report.test is not None and report.test.impossible > 0
    assert "target probability 0" in str(report)


def test_a_mistake_that_is_spread_over_thousands_of_tokens() -> None:
    """No token has an expected count above ten; pooling by q/p detects the mistake."""
    rng = np.random.default_rng(12)
    q = np.full(3000, 1.0 / 3000.0)
    p = q * np.where(rng.random(3000) < 0.5, 0.6, 1.4)
    drafts = otlp.IID(q, 2)
    wrong = audit(rules.each_in_turn, p / p.sum(), drafts, settings=AuditSettings(samples=8_000))
    assert wrong.verdict is Verdict.NOT_LOSSLESS
    right = audit(rules.eagle_style, p / p.sum(), drafts, settings=AuditSettings(samples=8_000))
    assert right.verdict is Verdict.NOT_REJECTED
    assert "No deviation is sure to be found" in str(right)


def test_the_seed_fixes_the_report() -> None:
    reports = [
        audit(
            rules.gamma_race,
            P,
            otlp.IID(Q, 1),
            settings=AuditSettings(samples=1_000),
            rng=np.random.default_rng(seed),
        )
        for seed in (1, 1, 2)
    ]
    assert str(reports[0]) == str(reports[1]) != str(reports[2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"samples": 10}, ">= 1000"),
        ({"samples": 1e5}, "must be an integer"),
        ({"samples": "many"}, "must be an integer"),
        ({"max_paths": "all"}, "must be an integer"),
        ({"max_paths": True}, "must be an integer"),
        ({"false_alarm_rate": "x"}, "between 0 and 1"),
        ({"confidence": None}, "between 0 and 1"),
        ({"tolerance": 1j}, "number >= 0"),
        ({"tolerance": np.nan}, ">= 0"),
        ({"tolerance": False}, ">= 0"),
        ({"rng": 3}, "numpy.random.Generator"),
        ({"progress": 3}, "callable"),
        ({"settings": {"samples": 1000}}, "settings must be .* AuditSettings"),
        ({"reported_draft": "q"}, "real numbers"),
        ({"reported_draft": [[0.5], [0.2, 0.3]]}, "reported_draft cannot be converted to an array"),
        ({"reported_draft": [1j]}, "real numbers"),
        ({"target": "p"}, "target"),
        ({"target": None}, "target"),
        ({"declared": 3}, "draft scheme"),
        ({"drafts": otlp.IID, "declared": otlp.IID(Q, 1)}, "sampler"),
        ({"rule": SOLVERS["max-flow"]}, "pass MaxFlow()"),
        ({"false_alarm_rate": 0.0}, "between 0 and 1"),
        ({"confidence": 1.0}, "between 0 and 1"),
        ({"tolerance": -1.0}, ">= 0"),
        ({"max_paths": -1}, ">= 0"),
        ({"drafts": lambda rng: [0]}, "declared="),
        ({"declared": otlp.IID(Q, 2)}, "same n and V"),
        ({"rule": 3}, "callable"),
        ({"drafts": 3, "declared": otlp.IID(Q, 1)}, "sampler"),
        ({"drafts": lambda rng: [0], "declared": otlp.IID(Q, 2), "max_paths": SAMPLED}, "n = 2"),
        ({"target": [0.5, 0.6], "drafts": otlp.IID([0.5, 0.5], 1)}, "must sum to 1 .*, got 1.1"),
    ],
)
def test_bad_input(arguments: dict[str, Any], words: str) -> None:
    call: dict[str, Any] = {"rule": rules.leviathan, "target": P, "drafts": otlp.IID(Q, 1)}
    fields = AuditSettings.__dataclass_fields__
    numbers = {name: arguments[name] for name in fields if name in arguments}
    others = {name: value for name, value in arguments.items() if name not in fields}
    with pytest.raises(InvalidInputError, match=words):
        audit(**({"settings": AuditSettings(**numbers)} | call | others))


@BOTH
def test_a_sampler_that_fails_is_named(max_paths: int) -> None:
    for bad, words in (
        (hostile.failing, r"KeyError: '\[/bold\]'"),
        (hostile.leaving, "SystemExit: 0"),
    ):
        sampler, how = partial(bad, Q), AuditSettings(max_paths=max_paths)
        with pytest.raises(InvalidInputError, match=words):
            audit(rules.leviathan, P, sampler, declared=otlp.IID(Q, 1), settings=how)


def test_more_samples_than_memory_are_refused() -> None:
    with pytest.raises(SizeLimitError, match="10,000"):
        audit(rules.leviathan, P, otlp.IID(Q, 10_000), settings=AuditSettings(samples=10**8))


def test_what_a_rule_says_is_made_harmless() -> None:
    def nameless(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        class Nameless:
            def __repr__(self) -> str:
                raise RuntimeError

        return Nameless()

    for rule, words in (
        (hostile.loud, r"\x1b[31mred\x07"),
        (hostile.leaves, "raises SystemExit: 0"),
        (nameless, "returns a Nameless"),
    ):
        report = audit(rule, P, otlp.IID(Q, 1))
        assert report.verdict is Verdict.RULE_FAILED
        assert words in str(report)
        assert str(report).replace("\n", "").isprintable()
