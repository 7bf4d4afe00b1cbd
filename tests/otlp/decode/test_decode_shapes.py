"""Adaptive tree shapes: their input, their drafts, invalid input."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.decode import (
    ALGORITHMS,
    Children,
    Drafting,
    RandomChooser,
    RuledDrafting,
    Sampling,
    ShapedDrafting,
    ShapeRule,
    TabularModel,
    Tournament,
    Traversal,
    certain_tree,
    delayed_paths,
    drafting,
    hub_pairs,
    iid_paths,
    mixed_tree,
    no_draft,
    play_round,
    prefix_tree,
    random_pair,
    top_tree,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.round_laws import draft_trees, round_law
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp_lab.design.adaptive import adaptive_branching, adaptive_depth
from otlp_lab.design.mixed_nodes import mixed_shape
from otlp_lab.laws.prefix_laws import prefix_law
from tests.otlp.decode.tabular_rounds import LEAF

RULED: list[Drafting] = [
    mixed_tree([(1, 1), (0, 2)]),
    adaptive_depth(3, 3, 0.3),
    adaptive_branching(6, 3, 0.6),
    top_tree(5, 3),
    top_tree(6, 3, 2),
    mixed_shape(((((LEAF,), ()), LEAF), (((), (LEAF,)),))),
]


class Once(ShapeRule[int]):
    """Requests a fixed answer at the root, and nothing below."""

    certain, length = True, 1

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def root(self) -> int:
        return 0

    def children(self, state: int, q: FloatArray) -> Children:
        return self.asked

    def below(self, state: int, q: FloatArray, place: int, token: int) -> None:
        return None


class Watched(ShapeRule[Any]):
    """Wraps a rule and records all its input."""

    def __init__(self, rule: ShapeRule[Any]) -> None:
        self.rule, self.shown = rule, []

    @property
    def length(self) -> int:
        return self.rule.length

    def root(self) -> Any:
        return (), self.rule.root()

    def children(self, state: Any, q: FloatArray) -> Children:
        self.shown.append((state[0], q))
        return self.rule.children(state[1], q)

    def below(self, state: Any, q: FloatArray, place: int, token: int) -> Any:
        found = self.rule.below(state[1], q, place, token)
        return None if found is None else ((*state[0], token), found)


EVERY: dict[str, Drafting] = {
    "iid_paths": iid_paths(2, 3),
    "delayed_paths": delayed_paths(1, 2, 2),
    "prefix_tree": prefix_tree([2, 2]),
    "without_replacement": without_replacement([2, 1, 1]),
    "hub_pairs": hub_pairs(2),
    "tree_shape": tree_shape([-1, 0, 0, 1, 1, 3]),
    "no_draft": no_draft(),
    "mixed_tree": RULED[0],
    "mixed_shape": RULED[-1],
    "adaptive_depth": RULED[1],
    "adaptive_branching": RULED[2],
    "top_tree": RULED[3],
    "certain_tree": certain_tree([-1, 0, 0, 1]),
}
"""Result of each function that returns a drafting."""


def test_every_drafting_is_looked_at() -> None:
    makers = {name for name in drafting.__all__ if inspect.isfunction(getattr(drafting, name))}
    assert makers | {"adaptive_depth", "adaptive_branching", "mixed_shape"} == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_no_shape_looks_at_the_target(name: str) -> None:
    """The same seed drafts the same tree for any target."""
    draft, one = random_pair(4, 6, np.random.default_rng(0))
    _, other = random_pair(4, 6, np.random.default_rng(1))
    for seed in range(5):
        trees = []
        for target in (one, other):
            for model in (draft, target):
                model.start(np.empty(0, dtype=np.int64))
            rng = np.random.default_rng(seed)
            trees.append(play_round(draft, target, EVERY[name], Traversal(), rng).tree)
        assert trees[0].tokens.tolist() == trees[1].tokens.tolist()
        assert trees[0].parents.tolist() == trees[1].parents.tolist()


@pytest.mark.parametrize("drafting", RULED[:3], ids=str)
def test_a_rule_is_shown_the_draft_along_its_own_path(drafting: RuledDrafting) -> None:
    draft, _ = random_pair(3, 4, np.random.default_rng(2))
    draft.start(np.empty(0, dtype=np.int64))
    watched = Watched(drafting.rule)
    for seed in range(20):
        RuledDrafting(watched).draft(draft, RandomChooser(np.random.default_rng(seed)))
    for path, q in watched.shown:
        np.testing.assert_array_equal(q, draft.distribution(path))


def test_the_budget_is_kept_and_the_slots_are_the_nodes() -> None:
    draft, _ = random_pair(3, 4, np.random.default_rng(3))
    for nodes in (0, 1, 3, 5):
        for tree, _ in draft_trees(draft, adaptive_branching(nodes, 3, 0.6)):
            assert tree.slots.nodes.size <= nodes + 1
            assert (len(tree) == 1) == (nodes == 0)
            assert set(tree.slots.nodes.tolist()) == set(range(len(tree)))
            for slot, parent in enumerate(tree.slots.parents[1:].tolist(), start=1):
                assert tree.slots.nodes[parent] == tree.parents[tree.slots.nodes[slot]]


def test_paths_end_where_they_are_worth_less_than_the_threshold() -> None:
    draft, _ = random_pair(3, 5, np.random.default_rng(4))
    for tree, _ in draft_trees(draft, adaptive_depth(2, 3, 0.35)):
        for slot, below in enumerate(tree.slots.children):
            path = tree.path(int(tree.slots.nodes[slot])).tolist()
            worth = np.prod([draft.distribution(path[:at])[x] for at, x in enumerate(path)])
            assert bool(below) == (len(path) < 3 and worth >= 0.35)


@pytest.mark.parametrize("nodes", [1, 2, 4, 7])
def test_the_top_tree_holds_the_most_likely_prefixes(nodes: int) -> None:
    draft, _ = random_pair(3, 3, np.random.default_rng(nodes))
    (tree, chance), = draft_trees(draft, top_tree(nodes, 2))  # fmt: skip
    assert chance == 1.0
    found = {tuple(tree.path(node).tolist()) for node in range(1, len(tree))}
    worth: dict[tuple[int, ...], float] = {(x,): float(draft.joint(1)[x]) for x in range(3)}
    worth |= {(x, y): float(draft.joint(2)[x, y]) for x in range(3) for y in range(3)}
    assert found == set(sorted(worth, key=lambda path: -worth[path])[:nodes])


def test_mixed_nodes_draw_what_is_not_certain() -> None:
    draft, _ = random_pair(4, 2, np.random.default_rng(5))
    q = draft.distribution(())
    top = np.argsort(-q)[:2].tolist()
    masses = np.zeros(4)
    for tree, chance in draft_trees(draft, mixed_tree([(2, 1)])):
        drawn = tree.drawn(0).tolist()
        assert drawn[:2] == top
        assert tree.slots.certain.tolist() == [False, True, True, False]
        masses[drawn[2]] += chance
    q[top] = 0.0
    np.testing.assert_allclose(masses, q / q.sum(), atol=1e-14)


@pytest.mark.parametrize("name", EVERY)
def test_a_drafting_is_shortened_as_itself(name: str) -> None:
    """Up to the depth the same tree is drafted, with the same law unless it depends on the rest."""
    drafting, pair = EVERY[name], random_pair(2, 4, np.random.default_rng(9))
    for length in range(drafting.length + 2):
        short = drafting.shortened(length)
        assert short.length == min(length, drafting.length)
        assert short.shortened(length).length == short.length
        trees: Counter[Any] = Counter()
        for made, sign in ((short, 1.0), (drafting, -1.0)):
            for tree, chance in draft_trees(pair[0], made):
                paths = [tuple(tree.path(node).tolist()) for node in range(len(tree))]
                trees[tuple(path for path in paths if len(path) <= length)] += sign * chance  # type: ignore[assignment]
        if name != "top_tree":  # The N most likely prefixes of fewer tokens differ.
            assert max(map(abs, trees.values())) < 1e-12
        law = prefix_law(*pair, short, Tournament() if drafting.independent else Traversal())
        wanted = pair[1].joint(short.length + 1)
        np.testing.assert_allclose(law.tokens, wanted, atol=1e-12)


WRONG = [Children((0, 0)), Children((3,)), Children((-1,)), Children(drawn=-1), Children((), 10**6)]


@pytest.mark.parametrize("asked", [None, *WRONG])
def test_a_rule_that_asks_for_what_there_is_not(asked: Any) -> None:
    draft, target = random_pair(3, 2, np.random.default_rng(6))
    with pytest.raises(InvalidInputError):
        round_law(draft, target, RuledDrafting(Once(asked)), Tournament())


def test_a_rule_may_ask_for_nothing() -> None:
    pair = random_pair(3, 2, np.random.default_rng(7))
    law = round_law(*pair, RuledDrafting(Once(Children())), Tournament())
    assert law.block_efficiency == 1.0
    # No other token can be drawn besides the certain token.
    one = TabularModel([[1.0, 0.0, 0.0], np.eye(3)])
    law = round_law(one, pair[1], RuledDrafting(Once(Children((0,), 2))), Tournament())
    np.testing.assert_allclose(law.tokens, pair[1].joint(2), atol=1e-12)


def test_a_class_of_schemes_is_a_kind() -> None:
    pair = random_pair(3, 2, np.random.default_rng(9))
    named, classed = (
        round_law(*pair, tree_shape([-1, 0, 0], kind), ALGORITHMS["hub"])
        for kind in ("hub", otlp.Hub)
    )
    np.testing.assert_array_equal(named.tokens, classed.tokens)
    np.testing.assert_allclose(named.tokens, pair[1].joint(2), atol=1e-12)


@pytest.mark.parametrize("drafting", [*RULED, tree_shape([-1, 0, 1, 2])], ids=str)
def test_a_tree_deeper_than_the_context_is_refused(drafting: Drafting) -> None:
    pair = random_pair(3, drafting.length, np.random.default_rng(8))
    with pytest.raises(InvalidInputError, match="greater length"):
        round_law(*pair, drafting, Tournament())


@pytest.mark.parametrize(
    "make",
    [
        lambda: iid_paths(0, 3),
        lambda: iid_paths(2, 0),
        lambda: iid_paths(True, 2),
        lambda: prefix_tree([]),
        lambda: prefix_tree([2, 0]),
        lambda: hub_pairs(0),
        lambda: tree_shape([-1]),
        lambda: tree_shape([0, 0]),
        lambda: tree_shape([-1, 2, 0]),
        lambda: tree_shape([-1, 0, 0, 0], "hub"),
        lambda: tree_shape([-1, 0, 0, 0], otlp.Hub),
        lambda: ShapedDrafting(()),
        lambda: random_pair(0, 2, np.random.default_rng(0)),
        lambda: Sampling(temperature=-1.0),
        lambda: Sampling(top_k=0),
        lambda: Sampling(top_p=0.0),
        lambda: Sampling(min_p=1.5),
        lambda: Sampling(min_p=-0.1),
        lambda: TabularModel([]),
        lambda: TabularModel([[0.5, 0.5], [0.5, 0.5]]),
        lambda: mixed_tree([]),
        lambda: mixed_tree([(0, 0)]),
        lambda: mixed_tree([(1, -1)]),
        lambda: mixed_tree([3]),
        lambda: mixed_tree([(100, 100)] * 3),
        lambda: adaptive_depth(0, 2, 0.1),
        lambda: adaptive_depth(2, 2, 1.1),
        lambda: adaptive_branching(-1, 2),
        lambda: adaptive_branching(2, 0),
        lambda: adaptive_branching(2, 2, -0.1),
        lambda: top_tree(-1, 2),
        lambda: top_tree(10**6, 2),
        lambda: top_tree(2, 0),
        lambda: top_tree(2, 2, 0),
        lambda: RuledDrafting("mixed"),
    ],
)
def test_bad_input(make: Any) -> None:
    with pytest.raises(InvalidInputError):
        make()
