"""Limits of rules that see only the drafted tree: orders, equalities, and theorems.

The bound of a drafting (`drafting_lp`) is attained, for each pair, by a rule made for this pair. A
verification algorithm does not know the pair: it sees the distributions of both models at the
drafted nodes.  Over a finite family of pairs, two pairs with the same drafted tree must be treated
equally, and the rule must be lossless for each pair; this is also a linear program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from otlp.decode import (
    Drafting,
    TabularModel,
    iid_paths,
    mixed_tree,
    prefix_tree,
    random_pair,
    top_tree,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.round_laws import draft_trees
from otlp_lab.design.adaptive import adaptive_depth
from otlp_lab.laws.drafting_lp import drafting_optimum
from otlp_lab.laws.slot_laws import tournament_efficiency
from otlp_lab.laws.written_program import WrittenProgram
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


Path = tuple[int, ...]
Look = frozenset[tuple[Path, bytes, bytes | None]]
"""Content of a drafted tree: prefixes, target distributions, and draft distributions if called."""


def on_tree_optimum(
    pairs: Sequence[Pair], drafting: Drafting, weights: Sequence[float] | None = None
) -> float:
    """Mean block efficiency of the best rule that sees only the drafted tree.

    The rule returns an accepted node and a correction, given the drafted prefixes and the
    distributions of both models there: the target at all nodes, the draft where it was called.  The
    rule must be lossless for every pair of the family.  The result bounds every rule that is
    lossless for all pairs; a rule attains it if the family is a product: for each prefix some
    distributions, and all combinations of them.

    One column per view of a drafted tree, node and correction.  One row per pair, prefix and next
    token: A(xy) + (mass of corrections y at x) = A(x) p(y | x), which is losslessness.
    """
    chances = [1.0 / len(pairs)] * len(pairs) if weights is None else weights
    looks = [_looks(pair, drafting) for pair in pairs]
    inner = {x[:-1] for seen in looks for look in seen for x, _, _ in look if x}
    tokens = range(pairs[0][0].vocab_size)
    program = WrittenProgram("the family")
    known: dict[Look, int] = {}
    for at, ((_, target), seen, weight) in enumerate(zip(pairs, looks, chances, strict=True)):
        prefixes = {x for look in seen for x, _, _ in look}
        accepted = {x: program.row() for x in prefixes}
        follows = {(*x, y): program.row() for x in prefixes & inner for y in tokens}
        for x in prefixes:
            program.gain((at, x), weight)
            program.add(accepted[x], (at, x), -1.0)
            if x:
                program.add(accepted[x[:-1]], (at, x), 1.0)
                program.add(follows[x], (at, x), 1.0)
        for x, row in follows.items():
            program.add(row, (at, x[:-1]), -float(target.distribution(x[:-1])[x[-1]]))
        for look, mass in seen.items():
            fresh = look not in known
            if fresh:
                known[look] = program.row(1.0)
            for x, _, _ in look:
                # Without drafts below, the correction follows the target.
                for y in tokens if x in inner else (None,):
                    end = look, x, y
                    program.add(accepted[x], end, mass)
                    if y is not None:
                        program.add(follows[(*x, y)], end, mass)
                    if fresh:
                        program.add(known[look], end, 1.0)
    return program.largest()


def _looks(pair: Pair, drafting: Drafting) -> dict[Look, float]:
    """Return the views of the drafted trees of a pair, with probabilities."""
    draft, target = pair
    found: defaultdict[Look, float] = defaultdict(float)
    for tree, mass in draft_trees(draft, drafting):
        nodes = [tuple(tree.path(node).tolist()) for node in range(len(tree))]
        asked = {nodes[node]: q.tobytes() for node, q in tree.distributions.items()}
        found[frozenset((x, target.distribution(x).tobytes(), asked.get(x)) for x in nodes)] += mass
    return found


def family_of(options: list[tuple[Pair, ...]]) -> list[Pair]:
    """Return all pairs over V tokens with one first distribution and one option after each token.

    The first distribution of each option is scored; a third token is uniform.
    """
    (root,), *below = options
    ends = np.full((len(below),) * 3, 1.0 / len(below))

    def model(of: int, picks: tuple[Pair, ...]) -> TabularModel:
        return TabularModel([root[of].tables[0], np.stack([o[of].tables[0] for o in picks]), ends])

    return [(model(0, picks), model(1, picks)) for picks in product(*below)]


def random_family(size: int, rng: np.random.Generator) -> list[Pair]:
    """Return all combinations of two distributions after each first token."""
    counts = (1, *(2,) * size)
    return family_of([tuple(random_pair(size, 1, rng) for _ in range(c)) for c in counts])


@pytest.mark.parametrize(("drafting", "size"), DRAFTINGS, ids=str)
def test_every_pair_reaches_its_bound_whatever_others_there_are(
    drafting: Drafting, size: int
) -> None:
    """The theorem: only one pair is scored, and the rule is lossless for the whole family.

    The other pairs share some of its distributions, so that trees are equal down to the first
    difference.
    """
    family = random_family(size, np.random.default_rng(size))
    best = pytest.approx(drafting_optimum(*family[0], drafting), abs=SLACK)
    assert on_tree_optimum(family, drafting, np.eye(len(family))[0].tolist()) == best
    assert on_tree_optimum(family[:1], drafting) == best


def option(q: list[float], p: list[float]) -> Pair:
    return TabularModel([np.array(q)]), TabularModel([np.array(p)])


def test_not_all_pairs_reach_their_bounds_at_once() -> None:
    """A distribution that the tree may not show determines how paths should be shared."""
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


@pytest.mark.parametrize(
    ("paths", "size"), [(2, 2), (3, 2), pytest.param(2, 3, marks=pytest.mark.slow)]
)
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
