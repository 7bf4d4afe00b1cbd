"""Test vectors: answers are those of the rules, laws the target, and all mistakes are detected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otlp.distribution import total_variation
from otlp.testing.plain_rules import MUTANTS, RULES
from otlp.testing.vectors import Case, distinguishing_case, exact_law, make_vectors

pytestmark = pytest.mark.usefixtures("few_repetitions")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = make_vectors()["cases"]
    return found


def case_of(entry: dict[str, Any]) -> Case:
    return Case(entry["rule"], *(list(map(np.array, entry[name])) for name in ("target", "draft")))


def test_two_tokens_accept_what_a_pencil_says(cases: list[dict[str, Any]]) -> None:
    assert [case["accepted"] for case in cases[:2]] == pytest.approx([10 / 9, 11 / 9], abs=1e-12)


def test_answers_are_the_rules_own(cases: list[dict[str, Any]]) -> None:
    for entry in cases:
        for line in [*entry["examples"], *(mutant["example"] for mutant in entry["mutants"])]:
            assert case_of(entry).answer(line) == line["tokens"]


@pytest.mark.parametrize("rule", RULES)
def test_right_rules_are_lossless_and_mistakes_are_not(rule: str) -> None:
    case, found_rounds = distinguishing_case(rule, seed=1)
    target = case.audited_rule().texts()
    law, _ = exact_law(case)
    assert law is None if rule == "two-slice" else total_variation(law, target) < 1e-12
    assert list(found_rounds) == list(MUTANTS[rule])
    for mistake, line in found_rounds.items():
        assert case.answer(line, mistake) == line["mutant"] != line["tokens"]
        wrong, _ = exact_law(case, mistake)
        assert wrong is None or total_variation(wrong, target) > 1e-4


@pytest.mark.parametrize("rule", RULES)
def test_every_seed_tells_every_mistake(rule: str) -> None:
    for seed in range(20):
        assert len(distinguishing_case(rule, seed)[1]) == len(MUTANTS[rule])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_ten_thousand_seeds_tell_every_mistake(rule: str) -> None:
    for seed in range(1_000 if rule == "two-slice" else 10_000):
        assert len(distinguishing_case(rule, seed)[1]) == len(MUTANTS[rule])
