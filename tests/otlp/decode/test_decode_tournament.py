"""Tournament verification on trees of every shape: the exact law, orders, and refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.decode import (
    ALGORITHMS,
    Drafting,
    RandomChooser,
    RuledDrafting,
    ShapedDrafting,
    TabularModel,
    TargetOnly,
    TokenTree,
    TopDown,
    Tournament,
    hub_pairs,
    iid_paths,
    mixed_tree,
    no_draft,
    prefix_tree,
    random_pair,
    top_tree,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.laws.round_laws import round_law
from otlp.decode.verification.tournament import Draws
from otlp.distribution import FloatArray, IntArray
from otlp.errors import UnsupportedProblemError
from otlp.numerics.score_chains import powered, root_score, slices
from otlp_lab.design.adaptive import adaptive_branching, adaptive_depth
from otlp_lab.design.mixed_nodes import mixed_shape
from otlp_lab.laws.drafting_lp import drafting_optimum
from otlp_lab.laws.prefix_laws import prefix_law
from otlp_lab.laws.slot_laws import tournament_efficiency
from tests.examples import examples
from tests.otlp.decode.tabular_rounds import (
    DRAWN,
    EXTREME,
    HARDLY_WANTED,
    LEAF,
    ONE_TOKEN,
    STAIRS,
    TINY,
    UNWANTED,
    Pair,
    assert_law_of,
    assert_lossless,
    cut,
    hard_laws,
    hardly_wanted,
)

# Each drafting with the V for which the trees can be listed, and the V of the slow tests.
SIZES: list[tuple[Drafting, tuple[int, ...], tuple[int, ...]]] = [
    (no_draft(), (3,), ()),
    (iid_paths(2, 2), (2, 3), (4,)),
    (iid_paths(2, 3), (2,), (3,)),
    (prefix_tree([2, 1]), (2, 3), (4,)),
    (prefix_tree([1, 2]), (2, 3, 4), ()),
    (prefix_tree([2, 2]), (2,), (3,)),
    (prefix_tree([2, 1, 2]), (), (2,)),
    (prefix_tree([1, 2, 2]), (), (2,)),
    (prefix_tree([3, 2]), (), (2,)),
    (tree_shape([-1, 0, 0, 1, 1], "iid"), (2, 3), (4,)),
    (tree_shape([-1, 0, 0, 0, 1, 2], "iid"), (2,), (3,)),
    (mixed_tree([(1, 1)]), (2, 3, 4), ()),
    (mixed_tree([(1, 2)]), (2, 3, 4), ()),
    (mixed_tree([(2, 1)]), (2, 3, 4), ()),
    (mixed_tree([(1, 1), (1, 1)]), (2, 3, 4), ()),
    (mixed_tree([(0, 2), (1, 1)]), (2, 3), (4,)),
    (mixed_tree([(2, 0), (0, 1)]), (2, 3, 4), ()),
    (mixed_tree([(1, 0), (1, 1), (0, 1)]), (2, 3), ()),
    (mixed_tree([(1, 1), (1, 1), (1, 1)]), (2,), (3,)),
    (mixed_tree([(2, 1), (1, 0)]), (3,), ()),
    (mixed_tree([(2, 0), (2, 0)]), (2, 3, 4), ()),
    (mixed_shape(((((LEAF,), ()),), (((), (LEAF,)), LEAF))), (2, 3, 4), ()),
    (adaptive_depth(2, 2, 0.4), (2, 3), (4,)),
    (adaptive_depth(2, 3, 0.3), (2,), (3,)),
    (adaptive_branching(3, 2, 0.6), (2, 3, 4), ()),
    (adaptive_branching(4, 3, 0.5), (2, 3), ()),
    (top_tree(0, 2), (3,), ()),
    (top_tree(3, 3), (2, 3), ()),
    (top_tree(5, 2), (2, 3, 4), ()),
    (top_tree(6, 3, 2), (2, 3), ()),
]
DRAFTINGS = [drafting for drafting, _, _ in SIZES]
GRID = [
    pytest.param(drafting, size, marks=pytest.mark.slow if size == 4 else ())
    for drafting, sizes, _ in SIZES
    for size in sizes
]
LARGE = [(drafting, size) for drafting, _, sizes in SIZES for size in sizes]


def check_tournament(pair: Pair, drafting: Drafting) -> float:
    """Check losslessness, and the accepted masses of all slots and paths against the rounds."""
    found = assert_lossless(pair, drafting, Tournament()).block_efficiency
    if isinstance(drafting, ShapedDrafting | RuledDrafting):
        assert tournament_efficiency(*pair, drafting) == pytest.approx(found, abs=1e-12)
    return found


@pytest.mark.parametrize(("drafting", "size"), GRID, ids=str)
def test_the_target_is_kept(drafting: Drafting, size: int) -> None:
    rng = np.random.default_rng(size)
    pair = random_pair(size, drafting.length + 1, rng)
    for models in (pair, cut(pair, rng)):
        check_tournament(models, drafting)


@pytest.mark.slow
@pytest.mark.parametrize(("drafting", "size"), LARGE, ids=str)
def test_the_target_is_kept_on_larger_trees(drafting: Drafting, size: int) -> None:
    check_tournament(random_pair(size, drafting.length + 1, np.random.default_rng(size)), drafting)


EXTREMES = [d for d, v, _ in SIZES if d.length == 2 and 3 in v]
FOR_TINY = [
    *(prefix_tree([2, 1]), prefix_tree([1, 2]), UNWANTED[0]),
    *(adaptive_branching(4, 2), top_tree(4, 2)),
]


@pytest.mark.parametrize(
    ("drafting", "name"), [*product(EXTREMES, EXTREME), *product(FOR_TINY, TINY)], ids=str
)
def test_equal_models_disjoint_ones_and_tiny_probabilities(drafting: Drafting, name: str) -> None:
    found = check_tournament((EXTREME | TINY)[name], drafting)
    if name == "equal" and getattr(drafting, "is_iid_paths", False):
        assert found == pytest.approx(3.0, abs=1e-12)


@pytest.mark.parametrize(("drafting", "tiny"), HARDLY_WANTED, ids=str)
def test_certain_tokens_that_are_hardly_wanted(drafting: Drafting, tiny: tuple[float, ...]) -> None:
    """Shares are powers so small that scores differ by factors of e^-1e13 and less."""
    assert_lossless(hardly_wanted(*tiny), drafting, Tournament())


LITTLE = [1.0 - 1e-13, 0.1, 1e-6, 1e-9, 1e-12, 1e-14, 1e-20, 1e-100, 1e-300, 5e-324]


@pytest.mark.slow
@pytest.mark.parametrize("first", LITTLE)
@pytest.mark.parametrize("drafting", STAIRS, ids=["one", "two"])
def test_all_that_are_hardly_wanted(drafting: Drafting, first: float) -> None:
    for second in LITTLE[::2]:
        pair = hardly_wanted(first, second, 1e-12)
        assert_law_of(pair[1], round_law(*pair, drafting, Tournament()))


def test_powers_that_multiply_to_nothing() -> None:
    """Forty levels of unlikely target tokens: 1e-560, below the range of float64."""
    shape: tuple[object, ...] = DRAWN
    for _ in range(40):
        shape = (shape,), (LEAF,)
    drafting = mixed_shape(shape)

    class Everywhere(TabularModel):
        def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
            return np.tile(self.tables[0], (len(nodes), 1))

    draft = Everywhere([[0.6, 0.3, 0.1]])
    for seed in range(5):
        chooser = RandomChooser(np.random.default_rng(seed))
        tree = drafting.draft(draft, chooser)
        targets = np.tile([1e-14, 0.4, 0.6 - 1e-14], (len(tree), 1))
        found = Tournament().verify(tree, targets, chooser)
        assert found.node == 0 or tree.tokens[found.node] > 0
        assert found.correction.sum() == pytest.approx(1.0, abs=1e-12)


DEEP: list[tuple[Drafting, int]] = [
    (prefix_tree([2, 2, 1]), 3),
    (iid_paths(3, 3), 3),
    (mixed_tree([(1, 1), (1, 1), (1, 1)]), 4),
    (adaptive_depth(3, 4, 0.05), 3),
    (adaptive_branching(5, 3, 0.5), 3),
]


@pytest.mark.parametrize("name", ["tournament", "target-only"])
@pytest.mark.parametrize(("drafting", "size"), DEEP, ids=str)
def test_the_target_is_kept_where_trees_are_too_many(
    drafting: Drafting, size: int, name: str
) -> None:
    """Prefix by prefix; the tests of whole rounds link this to decoding."""
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(size))
    assert_law_of(pair[1], prefix_law(*pair, drafting, ALGORITHMS[name]))


@pytest.mark.parametrize("name", ["optimal", "traversal", "target-only", "naive"])
@pytest.mark.parametrize(
    "drafting",
    [mixed_tree([(1, 2), (1, 0)]), adaptive_depth(2, 2, 0.4), top_tree(4, 2)],
    ids=str,
)
def test_other_algorithms_on_these_trees(drafting: Drafting, name: str) -> None:
    pair = random_pair(3, 3, np.random.default_rng(5))
    assert_lossless(pair, drafting, ALGORITHMS[name])


@pytest.mark.parametrize("name", ["tournament", "traversal", "target-only", "optimal"])
@pytest.mark.parametrize(
    "drafting", [mixed_tree([(2, 1)]), mixed_tree([(3, 0)]), top_tree(3, 1)], ids=str
)
def test_tokens_that_the_draft_never_gives_may_be_certain(drafting: Drafting, name: str) -> None:
    law = assert_lossless(ONE_TOKEN, drafting, ALGORITHMS[name])
    if name == "tournament" and drafting == mixed_tree([(3, 0)]):
        assert law.block_efficiency == pytest.approx(2.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_beats_target_only_where_nothing_is_drawn(seed: int) -> None:
    """Tournament and the optimum at every node do not: all are the optimum of the tree."""
    rng = np.random.default_rng(seed)
    size, length, nodes = (int(rng.integers(2, 5)) for _ in range(3))
    pair, drafting = random_pair(size, min(length, 3) + 1, rng), top_tree(nodes, min(length, 3))
    best = round_law(*pair, drafting, TargetOnly())
    own = round_law(*pair, drafting, Tournament())
    np.testing.assert_allclose(own.lengths, best.lengths, rtol=0.0, atol=1e-10)
    top_down = round_law(*pair, drafting, TopDown()).block_efficiency
    assert top_down == pytest.approx(best.block_efficiency, abs=1e-10)
    assert drafting_optimum(*pair, drafting) == pytest.approx(best.block_efficiency, abs=1e-6)


def test_the_optimum_of_a_drafting_is_that_of_iid_paths() -> None:
    pair = random_pair(3, 3, np.random.default_rng(7))
    found = drafting_optimum(*pair, iid_paths(2, 2))
    assert found == pytest.approx(multipath_optimum(*pair, 2, 2), abs=2e-5)


@pytest.mark.parametrize("drafting", [without_replacement([2]), hub_pairs(1)], ids=str)
def test_dependent_siblings_are_refused(drafting: Drafting) -> None:
    pair = random_pair(3, 3, np.random.default_rng(0))
    with pytest.raises(UnsupportedProblemError, match=f"{drafting.kind_name} draws"):
        round_law(*pair, drafting, Tournament())
    with pytest.raises(UnsupportedProblemError, match="tournament"):
        tournament_efficiency(*pair, drafting)


@given(hard_laws(), st.floats(0.01, 1.0), st.floats(1e-3, 1.0), st.floats(0.0, 1.0))
@examples(50)
def test_tokens_mix_to_the_slot(
    laws: tuple[FloatArray, FloatArray], power: float, share: float, weight: float
) -> None:
    """At every edge, the draft mixture of the token distribution functions is that of the slot."""
    p, q = laws
    draws = Draws(powered(root_score(), power), share, weight, p, q)
    masses = draws.masses()
    assert masses.sum() == pytest.approx(share, rel=1e-12)
    cell, offset = draws.split[:2]
    mixed, below = 0.0, slices(draws.score, cell, offset)[0]
    for token in np.flatnonzero(q):
        child = draws.child(int(token))
        if child.score is None:
            assert masses[token] <= 1e-15
            mixed += q[token]  # all mass is below the cut
            continue
        score = child.score
        assert score.wins.sum() == pytest.approx(1.0, abs=1e-12)
        top = float(np.exp(score.left[-1, 0])) + score.masses.sum()
        assert q[token] * abs(top - 1.0) <= 1e-12
        # The cut is an edge of the score, or the score is on one side of the cut.
        place = draws.score.edges[cell] if np.isinf(offset) else np.logaddexp(
            draws.score.edges[cell], offset
        )  # fmt: skip
        count = int(np.sum(score.edges[1:] <= place + 1e-12))
        mixed += q[token] * (float(np.exp(score.left[-1, 0])) + score.masses[:count].sum())
    if not draws.flat:
        # Shares are relative to the means of the slices, which may be close.
        exact = 1e-12 + 4e-16 / (draws.split.high - draws.split.low)
        assert mixed == pytest.approx(below, abs=exact)
