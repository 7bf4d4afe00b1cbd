"""What rules that see only the drafted tree can reach: orders, equalities, and the theorems."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from otlp.decode import (
    Drafting,
    TabularModel,
    adaptive_depth,
    iid_paths,
    mixed_tree,
    prefix_tree,
    random_pair,
    top_tree,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.drafting_lp import drafting_optimum
from otlp.decode.laws.slot_laws import tournament_efficiency
from tests.otlp.decode.on_tree_lp import on_tree_optimum
from tests.otlp.decode.tabular_rounds import Pair

SLACK = 1e-9
DRAFTINGS: list[tuple[Drafting, int]] = [
    (iid_paths(2, 2), 2),
    (prefix_tree([2, 2]), 2),
    (without_replacement([2, 1]), 3),
    (tree_shape([-1, 0, 0, 1, 1, 2]), 2),
    (tree_shape([-1, 0, 0, 1], "iid"), 3),
    (mixed_tree([(1, 1), (1, 1)]), 2),
    (adaptive_depth(2, 2, 0.4), 3),
    (top_tree(4, 2), 3),
]


def family_of(options: list[tuple[Pair, ...]]) -> list[Pair]:
    """All pairs over V tokens whose first distribution is one, and that take one after each token.

    Of each option the first distribution counts; a third token comes evenly.
    """
    (root,), *below = options
    ends = np.full((len(below),) * 3, 1.0 / len(below))
    return [
        tuple(
            TabularModel([root[of].tables[0], np.stack([o[of].tables[0] for o in picks]), ends])
            for of in range(2)
        )
        for picks in product(*below)
    ]  # type: ignore[misc]


def random_family(size: int, rng: np.random.Generator) -> list[Pair]:
    """Two distributions after each first token, all their combinations."""
    counts = (1, *(2,) * size)
    return family_of([tuple(random_pair(size, 1, rng) for _ in range(c)) for c in counts])


@pytest.mark.parametrize(("drafting", "size"), DRAFTINGS, ids=str)
def test_every_pair_reaches_its_bound_whatever_others_there_are(
    drafting: Drafting, size: int
) -> None:
    """The theorem: only one pair counts, and the rule is lossless for all of the family.

    The others share some of its distributions, so that trees look alike down to where they differ.
    """
    family = random_family(size, np.random.default_rng(size))
    best = pytest.approx(drafting_optimum(*family[0], drafting), abs=SLACK)
    assert on_tree_optimum(family, drafting, np.eye(len(family))[0].tolist()) == best
    assert on_tree_optimum(family[:1], drafting) == best


def option(q: list[float], p: list[float]) -> Pair:
    return TabularModel([np.array(q)]), TabularModel([np.array(p)])


def test_not_all_pairs_reach_their_bounds_at_once() -> None:
    """A distribution that the tree may not show decides how paths should be shared."""
    hidden = option([0.9, 0, 0.1], [0, 0.7, 0.3]), option([0.2, 0.8, 0], [0.2, 0.2, 0.6])
    family = family_of([
        (option([0.5, 0.3, 0.2], [0, 0.5, 0.5]),),
        (option([0.2, 0.6, 0.2], [0.5, 0, 0.5]),),
        (option([0, 1, 0], [0.1, 0.3, 0.6]),),
        hidden,
    ])  # fmt: skip
    drafting = iid_paths(2, 2)
    best = np.mean([drafting_optimum(*pair, drafting) for pair in family])
    assert best == pytest.approx(1.975, abs=1e-6)
    assert on_tree_optimum(family, drafting) == pytest.approx(1.9696, abs=1e-6)


@pytest.mark.parametrize(("paths", "size"), [(2, 2), (3, 2), (2, 3)])
def test_the_bounds_are_ordered(paths: int, size: int) -> None:
    family = random_family(size, np.random.default_rng(5))
    drafting = iid_paths(paths, 2)
    chain = [
        np.mean([tournament_efficiency(*pair, drafting) for pair in family]),
        on_tree_optimum(family, drafting),
        np.mean([drafting_optimum(*pair, drafting) for pair in family]),
    ]
    assert all(a <= b + SLACK for a, b in pairwise(chain))


def test_weights_count() -> None:
    family = random_family(2, np.random.default_rng(0))
    drafting = iid_paths(2, 2)
    twice = on_tree_optimum([family[0], family[0], family[1]], drafting)
    assert on_tree_optimum(family[:2], drafting, [2 / 3, 1 / 3]) == pytest.approx(twice, abs=SLACK)
