"""Rules that reject siblings, evaluated along texts, against the exact law of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tree_schemes import gain, top_down_profile

from otlp.decode import (
    ALGORITHMS,
    ShapedDrafting,
    TextModel,
    TopTree,
    prefix_tree,
    random_pair,
    tree_shape,
)
from otlp.decode.laws.round_laws import round_law
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp_lab.design import Renewal, WrittenText, top_tree_renewal
from otlp_lab.design.rejection_profiles import acceptance_by_try, rejection_profile
from otlp_lab.design.top_trees import top_tree_renewals
from otlp_lab.design.written_texts import write_text
from tests.otlp.decode.tabular_rounds import every_text

SAMPLES = 60
DISTINCT_TREE, IID_TREE = tree_shape([-1, 0, 0, 1, 1]), prefix_tree([3, 2])

Profile = Callable[[WrittenText, np.random.Generator], FloatArray]


def top_down(text: WrittenText, rng: np.random.Generator) -> FloatArray:
    return top_down_profile(text, IID_TREE, 2, rng)


def rejecting(rule: Literal["recursive-rejection", "traversal"]) -> Profile:
    return lambda text, rng: rejection_profile(text, DISTINCT_TREE, 2, rule, rng)


@pytest.mark.parametrize(
    ("rule", "drafting", "profile"),
    [
        ("recursive-rejection", DISTINCT_TREE, rejecting("recursive-rejection")),
        ("traversal", DISTINCT_TREE, rejecting("traversal")),
        pytest.param("optimal", IID_TREE, top_down, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_siblings_are_sampled_without_bias(
    rule: str, drafting: ShapedDrafting, profile: Profile
) -> None:
    pair = random_pair(3, 4, np.random.default_rng(1))
    texts = every_text(*pair, 3)
    rng = np.random.default_rng(2)
    found = np.array([
        sum(chance * profile(text, rng)[0] for text, chance in texts) for _ in range(SAMPLES)
    ])  # fmt: skip
    exact = round_law(*pair, drafting, ALGORITHMS[rule]).lengths
    reached = exact[::-1].cumsum()[::-1]
    error = found.std(axis=0, ddof=1) / np.sqrt(SAMPLES)
    # five standard errors for each of two numbers: false alarms below 1e-5
    assert np.all(np.abs(found.mean(axis=0) - reached) <= 5 * error + 1e-3)


def test_other_siblings_paths_and_rules_are_refused() -> None:
    text, rng = (
        write_text_of(*random_pair(3, 6, np.random.default_rng(6)), 5),
        np.random.default_rng(7),
    )
    wrong: list[tuple[Any, int, Any, str]] = [
        (IID_TREE, 2, "traversal", "got iid siblings"),
        (DISTINCT_TREE, 1, "traversal", "at most 1"),
        (DISTINCT_TREE, 2, "naive", "rule must be .*, got 'naive'"),
    ]
    for drafting, length, rule, words in wrong:
        with pytest.raises(InvalidInputError, match=words):
            rejection_profile(text, drafting, length, rule, rng)


def test_acceptance_by_try_is_that_of_siblings() -> None:
    pair = random_pair(3, 2, np.random.default_rng(3))
    texts = every_text(*pair, 1)
    rng = np.random.default_rng(4)
    only = [texts[0][0]]
    found = np.array([acceptance_by_try(only, 2, rng) for _ in range(SAMPLES)])
    law = round_law(*pair, tree_shape([-1, 0, 0]), ALGORITHMS["recursive-rejection"])
    error = found.sum(axis=1).std(ddof=1) / np.sqrt(SAMPLES)
    assert abs(found.sum(axis=1).mean() - law.lengths[1]) <= 5 * error + 1e-9


class Rounded(TextModel):
    """A model whose probabilities have another rounding error in every call."""

    def __init__(self, exact: Any, error: float) -> None:
        super().__init__(exact.vocab_size, "rounded")
        self.exact, self.error, self.rng = exact, error, np.random.default_rng(0)

    def distribution(self, text: Any) -> FloatArray:
        row = self.exact.distribution(tuple(text))
        row = row * np.exp(self.error * self.rng.standard_normal(row.size))
        found: FloatArray = row / row.sum()
        return found


@pytest.mark.parametrize("width", [None, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_deterministic_trees_accept_what_they_hold(seed, width):
    exact, target = random_pair(4, 8, np.random.default_rng(seed))
    text = write_text_of(exact, target, 7)
    draft, most = Rounded(exact, 1e-7), 3
    budgets = (1, 2, 4, 9, 30) if width is None else (9,)

    def begun(number: int) -> tuple[Any, Any]:
        draft.start(np.empty(0, dtype=np.int64))
        return draft, text.tokens

    renewals = top_tree_renewals(begun, [text], TopTree(budgets[-1], most, width), most, budgets)
    for nodes, renewal in zip(budgets, renewals, strict=True):
        drafting = TopTree(nodes, most, width)
        place = count = 0
        while place < len(text) - most:
            exact.start(text.tokens[:place])
            tree = drafting.draft(exact, None)  # no draws are needed
            held = {tuple(tree.path(node).tolist()) for node in range(len(tree))}
            longest = range(most + 1)
            place += 1 + max(n for n in longest if tuple(text.tokens[place : place + n]) in held)
            count += 1
        assert (renewal.tokens, renewal.calls) == ((place,), (count,))
        assert top_tree_renewal(begun, [text], drafting, most) == renewal


def write_text_of(draft: object, target: object, tokens: int) -> WrittenText:
    none = np.empty(0, dtype=np.int64)
    return write_text(draft, target, none, tokens, np.random.default_rng(6))


def test_written_text_holds_what_the_models_say() -> None:
    draft, target = random_pair(4, 5, np.random.default_rng(7))
    text = write_text_of(draft, target, 4)
    for at in range(4):
        np.testing.assert_allclose(text.targets[at], target.distribution(text.tokens[:at]))
        np.testing.assert_allclose(text.drafts[at], draft.distribution(text.tokens[:at]))
    with pytest.raises(InvalidInputError):
        write_text_of(draft, target, 0)


def test_gains_are_paired() -> None:
    one, two = Renewal((2.0, 4.0), (1.0, 2.0)), Renewal((2.0, 4.0), (2.0, 4.0))
    found = gain(one, two)
    assert found.mean == pytest.approx(1.0)
    assert found.high - found.low == pytest.approx(0.0, abs=1e-12)
