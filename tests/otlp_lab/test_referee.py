"""Counterexamples to rules of papers, with the smallest instances, in fractions."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from rivals import HSD, RULES, ReleasedHSD, ReleasedSpecTrGBV

from otlp.decode import (
    ALGORITHMS,
    Block,
    BottomUp,
    Drafting,
    TabularModel,
    TopDown,
    Tournament,
    Traversal,
    Verification,
    delayed_paths,
    iid_paths,
    mixed_tree,
    prefix_tree,
    random_pair,
    without_replacement,
)
from otlp.decode.laws.round_laws import RoundLaw, round_law
from otlp_lab.laws.drafting_lp import drafting_optimum
from otlp_lab.laws.prefix_laws import prefix_law
from otlp_lab.list_sampling import ListSampling
from tests.otlp.decode.tabular_rounds import PAIRS, assert_law_of, assert_lossless, make_pair

SIZES = [
    *((2, 1, 2), (2, 2, 2), (3, 1, 3), (3, 2, 2), (4, 1, 3), (4, 2, 1), (3, 3, 1)),
    pytest.param(2, 3, 2, marks=pytest.mark.slow),
]
"""V, L, K."""
HALVES = np.array([0.5, 0.5])


def total_variation(law: RoundLaw, target: TabularModel) -> float:
    return 0.5 * float(np.abs(law.tokens - target.joint(law.tokens.ndim)).sum())


@pytest.mark.parametrize(("size", "length", "kind"), list(product((2, 3, 4), (1, 2, 3), PAIRS)))
def test_hsd_of_the_paper_is_block_verification(size: int, length: int, kind: str) -> None:
    draft, target = make_pair(kind, size, length)
    drafting = iid_paths(1, length)
    found, block = (round_law(draft, target, drafting, rule) for rule in (HSD(), Block()))
    assert total_variation(found, target) <= 1e-10
    np.testing.assert_allclose(found.lengths, block.lengths, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(found.tokens, block.tokens, rtol=0.0, atol=1e-12)


def test_one_path_as_released_writes_aa_three_times_in_four() -> None:
    """p is a, then uniform; q is uniform, then a. Both rules can be computed by hand."""
    target = TabularModel([[1.0, 0.0], [HALVES] * 2, np.full((2, 2, 2), 0.5)])
    draft = TabularModel([HALVES, [[1.0, 0.0]] * 2, np.full((2, 2, 2), 0.5)])

    def law(rule: Verification, paths: int = 1) -> RoundLaw:
        return round_law(draft, target, iid_paths(paths, 2), rule)

    for rule in (ReleasedHSD(), ReleasedSpecTrGBV()):
        found = law(rule)
        np.testing.assert_allclose(found.tokens.sum(axis=2), [[0.75, 0.25], [0.0, 0.0]], atol=1e-15)
        assert found.block_efficiency == pytest.approx(2.0)
    assert total_variation(law(Block()), target) <= 1e-15
    assert law(Block()).block_efficiency == pytest.approx(1.75)
    # two paths of SpecTr-GBV
    found = law(ReleasedSpecTrGBV(), paths=2)
    wanted = np.array([[49, 23], [0, 0]]) / 72
    np.testing.assert_allclose(found.tokens.sum(axis=2), wanted, atol=1e-15)


def test_spectr_gbv_as_released_loses_a_54th() -> None:
    """One token, two paths, p = (3/4, 1/4), q = (1/2, 1/2): the output is (249, 75) / 324."""
    target = TabularModel([[0.75, 0.25], [HALVES] * 2])
    draft = TabularModel([HALVES, [HALVES] * 2])
    law = round_law(draft, target, iid_paths(2, 1), ReleasedSpecTrGBV())
    np.testing.assert_allclose(law.tokens.sum(axis=1), np.array([249, 75]) / 324, atol=1e-15)
    np.testing.assert_allclose(law.lengths, np.array([49, 275]) / 324, atol=1e-15)


@pytest.mark.parametrize("seed", range(6))
def test_where_the_released_rules_keep_the_law(seed: int) -> None:
    draft, target = random_pair(3, 4, np.random.default_rng(seed))
    for rule in (ReleasedHSD(), ReleasedSpecTrGBV()):
        law = round_law(draft, target, iid_paths(1, 1), rule)
        assert total_variation(law, target) <= 1e-12
    for length in (2, 3):
        drafting = iid_paths(1, length)
        found = round_law(draft, target, drafting, ReleasedHSD())
        assert total_variation(found, target) > 1e-3
        # Its gain over block verification, the optimum for one path, equals this loss.
        best = drafting_optimum(draft, target, drafting)
        assert found.block_efficiency > best + 1e-4
        block = round_law(draft, target, drafting, Block())
        assert block.block_efficiency == pytest.approx(best, abs=1e-6)


def test_no_table_of_the_library_has_them() -> None:
    assert not {rule.name for rule in RULES} & set(ALGORITHMS)


@cache
def optimum(kind: str, size: int, length: int, paths: int) -> float:
    return drafting_optimum(*make_pair(kind, size, length), iid_paths(paths, length))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("rule", [ListSampling(), BottomUp()], ids=lambda rule: rule.name)
@pytest.mark.parametrize(("size", "length", "paths"), SIZES)
def test_lossless_and_below_the_program(
    size: int, length: int, paths: int, rule: Verification, kind: str
) -> None:
    draft, target = make_pair(kind, size, length)
    law = round_law(draft, target, iid_paths(paths, length), rule)
    assert_law_of(target, law)
    best = optimum(kind, size, length, paths)
    assert law.block_efficiency <= best + 1e-6
    if rule == BottomUp() and 1 in (length, paths):  # one token, or one path: optimal
        assert law.block_efficiency == pytest.approx(best, abs=1e-6)
    if rule == ListSampling() and kind == "same":  # all lists have one winner in the list that won
        assert law.block_efficiency >= 1.0 + length / 2


TREES: list[tuple[Drafting, int, tuple[Verification, ...]]] = [
    *((tree, 2, (ListSampling(), Traversal(), Tournament()))
      for tree in (delayed_paths(1, 2, 1), delayed_paths(0, 2, 2))),
    (prefix_tree([2, 2]), 2, (ListSampling(),)),
    *((tree, 3, (BottomUp(),))
      for tree in (delayed_paths(1, 2, 1), mixed_tree([(1, 1), (0, 1)]))),
    (prefix_tree([2, 2]), 2, (BottomUp(),)),
]  # fmt: skip
SLOW = pytest.param(prefix_tree([2, 2]), 2, (Traversal(), Tournament()), marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("drafting", "size", "rules"), [*TREES, SLOW], ids=str)
def test_trees_are_lossless(
    drafting: Drafting, size: int, rules: tuple[Verification, ...], kind: str
) -> None:
    pair = make_pair(kind, size, drafting.length)
    for rule in rules:
        assert_lossless(pair, drafting, rule)


@pytest.mark.parametrize("kind", ["random", "same", "target cut"])
def test_bottom_up_of_recursive_rejection_is_traversal(kind: str) -> None:
    for drafting in (iid_paths(2, 2), without_replacement([2, 1])):
        draft, target = make_pair(kind, 3, drafting.length)
        laws = [
            prefix_law(draft, target, drafting, rule)
            for rule in (BottomUp(TopDown("recursive-rejection")), Traversal())
        ]
        np.testing.assert_allclose(laws[0].tokens, laws[1].tokens, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(laws[0].lengths, laws[1].lengths, rtol=0.0, atol=1e-12)


def test_where_bottom_up_is_ahead_of_tournament_and_where_behind() -> None:
    """Neither rule is best on every tree."""
    gains = []
    for seed in range(6):
        pair = random_pair(3, 4, np.random.default_rng(seed))
        laws = [prefix_law(*pair, iid_paths(2, 2), rule) for rule in (BottomUp(), Tournament())]
        gains.append(laws[0].block_efficiency - laws[1].block_efficiency)
    assert max(gains) > 1e-3
    assert min(gains) < -1e-3
