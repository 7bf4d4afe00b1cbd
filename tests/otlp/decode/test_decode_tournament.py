"""Tournament verification on trees of every shape: the exact law, orders, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otlp.decode import (
    ALGORITHMS,
    Drafting,
    DraftTree,
    RandomChooser,
    TabularModel,
    TargetOnly,
    TopDown,
    Tournament,
    Traversal,
    adaptive_branching,
    adaptive_depth,
    hub_pairs,
    iid_paths,
    mixed_shape,
    mixed_tree,
    no_draft,
    prefix_tree,
    random_pair,
    top_tree,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.drafting_lp import drafting_optimum
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.laws.prefix_laws import prefix_law
from otlp.decode.laws.round_laws import round_law
from otlp.decode.laws.slot_laws import tournament_efficiency
from otlp.decode.verification.tournament import Draws
from otlp.distribution import FloatArray, IntArray
from otlp.errors import UnsupportedProblemError
from otlp.numerics.score_chains import powered, root_score, slices
from tests.tiny_models import name_of

Pair = tuple[TabularModel, TabularModel]
TOLERANCE = 1e-10

# with each drafting the V that few enough trees are drafted for, and those for the slow tests
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
    (mixed_tree([(2, 0), (2, 0)]), (2, 3, 4), ()),
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
GRID = [(drafting, size) for drafting, sizes, _ in SIZES for size in sizes]
LARGE = [(drafting, size) for drafting, _, sizes in SIZES for size in sizes]


def cut(pair: Pair, rng: np.random.Generator) -> Pair:
    """Cut tokens off both models at random places, at least one left in each."""
    found = []
    for model in pair:
        tables = []
        for table in model.tables:
            kept = table * (rng.random(table.shape) < 0.6)
            kept = np.where(kept.sum(axis=-1, keepdims=True) == 0.0, table, kept)
            tables.append(kept / kept.sum(axis=-1, keepdims=True))
        found.append(TabularModel(tables, model.name))
    return found[0], found[1]


def assert_lossless(pair: Pair, drafting: Drafting, verification: object = None) -> float:
    """By whole rounds, and prefix by prefix to the same law."""
    law = round_law(*pair, drafting, verification or Tournament())  # type: ignore[arg-type]
    again = prefix_law(*pair, drafting, verification or Tournament())  # type: ignore[arg-type]
    np.testing.assert_allclose(again.tokens, law.tokens, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(again.lengths, law.lengths, rtol=0.0, atol=1e-12)
    assert np.abs(law.tokens - pair[1].joint(drafting.length + 1)).sum() <= TOLERANCE
    assert law.lengths.sum() == pytest.approx(1.0, abs=TOLERANCE)
    return law.block_efficiency


@pytest.mark.parametrize(("drafting", "size"), GRID, ids=name_of)
def test_the_target_is_kept(drafting: Drafting, size: int) -> None:
    rng = np.random.default_rng(size)
    pair = random_pair(size, drafting.length + 1, rng)
    assert_lossless(pair, drafting)
    assert_lossless(cut(pair, rng), drafting)


@pytest.mark.slow
@pytest.mark.parametrize(("drafting", "size"), LARGE, ids=name_of)
def test_the_target_is_kept_on_larger_trees(drafting: Drafting, size: int) -> None:
    assert_lossless(random_pair(size, drafting.length + 1, np.random.default_rng(size)), drafting)


@pytest.mark.parametrize(
    "drafting", [d for d, v, _ in SIZES if d.length == 2 and 3 in v], ids=name_of
)
def test_equal_models_and_disjoint_ones(drafting: Drafting) -> None:
    _, target = random_pair(3, drafting.length + 1, np.random.default_rng(3))
    equal = assert_lossless((target, target), drafting)
    if getattr(drafting, "is_iid_paths", False):
        assert equal == pytest.approx(3.0, abs=1e-12)
    one, other = np.zeros((2, 3)), np.zeros((2, 3))
    one[:, 0], other[:, 1:] = 1.0, 0.5
    tables = [[np.broadcast_to(row[0], (3,) * t + (3,)) for t in range(3)] for row in (one, other)]
    pair = TabularModel(tables[0]), TabularModel(tables[1])
    assert assert_lossless(pair, drafting) >= 1.0


@pytest.mark.parametrize("tiny", [1e-12, 1e-300, 5e-324])
@pytest.mark.parametrize(
    "drafting",
    [prefix_tree([2, 2]), mixed_tree([(1, 1), (0, 2)]), adaptive_branching(4, 2), top_tree(4, 2)],
    ids=name_of,
)
def test_tiny_probabilities(drafting: Drafting, tiny: float) -> None:
    draft = TabularModel([[tiny, 1.0 - tiny], [[tiny, 1.0], [0.5, 0.5]], np.full((2, 2, 2), 0.5)])
    target = TabularModel([[0.5, 0.5], [[0.5, 0.5], [tiny, 1.0]], np.full((2, 2, 2), 0.5)])
    assert_lossless((draft, target), drafting)
    assert_lossless((target, draft), drafting)


def hardly_wanted(*tiny: float) -> Pair:
    """Models of which the target gives so little to the draft's likeliest token, by depth."""
    draft, target = random_pair(3, len(tiny) + 1, np.random.default_rng(0))
    tables = list(target.tables)
    for depth, little in enumerate(tiny):
        wanted = np.arange(3) == draft.tables[depth].argmax(axis=-1)[..., None]
        rest = np.where(wanted, 0.0, tables[depth])
        rest *= (1.0 - little) / rest.sum(axis=-1, keepdims=True)
        tables[depth] = np.where(wanted, little, rest)
    return draft, TabularModel(tables)


LEAF = ((), ())
DRAWN = ((), (LEAF, LEAF))
# three levels: certain tokens with a drawn one beside each, then two drawn ones or more of the same
STAIRS = [
    mixed_shape(((((DRAWN,), (LEAF,)),), (LEAF,))),
    mixed_shape((((((((LEAF,), (LEAF,)),), (DRAWN,))),), (LEAF,))),
]
UNWANTED = [mixed_tree([(1, 1), (0, 2)]), mixed_tree([(1, 1), (1, 1)])]
LITTLE = [1.0 - 1e-13, 0.1, 1e-6, 1e-9, 1e-12, 1e-14, 1e-20, 1e-100, 1e-300, 5e-324]


@pytest.mark.parametrize(
    "tiny", [(1e-6, 0.1), (1e-9, 1e-14), (1e-14, 0.1), (1e-14, 1e-14), (1e-300, 1e-12)], ids=str
)
@pytest.mark.parametrize("drafting", UNWANTED, ids=name_of)
def test_a_certain_token_that_is_hardly_wanted(drafting: Drafting, tiny: tuple[float, ...]) -> None:
    """Its share is a power so small that places of scores lie e^-1e13 and less beside others."""
    assert_lossless(hardly_wanted(*tiny), drafting)


@pytest.mark.parametrize(
    "tiny",
    [(0.1, 1e-14, 0.1), (1e-12, 0.1, 1e-14), (1e-14, 1e-14, 1e-14), (1.0 - 1e-13, 1e-9, 1e-300),
     (1e-9, 1.0 - 1e-13, 1e-6), (1e-300, 1e-20, 5e-324)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("drafting", STAIRS, ids=["one", "two"])
def test_three_levels_that_are_hardly_wanted(drafting: Drafting, tiny: tuple[float, ...]) -> None:
    assert_lossless(hardly_wanted(*tiny), drafting)


@pytest.mark.slow
@pytest.mark.parametrize("first", LITTLE)
@pytest.mark.parametrize("drafting", STAIRS, ids=["one", "two"])
def test_all_that_are_hardly_wanted(drafting: Drafting, first: float) -> None:
    for second in LITTLE[::2]:
        law = round_law(*(pair := hardly_wanted(first, second, 1e-12)), drafting, Tournament())
        assert np.abs(law.tokens - pair[1].joint(4)).sum() <= TOLERANCE


def test_powers_that_multiply_to_nothing() -> None:
    """Forty levels of tokens that the target hardly wants: 1e-560, which no number holds."""
    shape: tuple[object, ...] = DRAWN
    for _ in range(40):
        shape = (shape,), (LEAF,)
    drafting = mixed_shape(shape)  # type: ignore[arg-type]

    class Everywhere(TabularModel):
        def distributions(self, tree: DraftTree, nodes: IntArray) -> FloatArray:
            return np.tile(self.tables[0], (len(nodes), 1))

    draft = Everywhere([[0.6, 0.3, 0.1]])
    for seed in range(5):
        chooser = RandomChooser(np.random.default_rng(seed))
        tree = drafting.draft(draft, chooser)
        targets = np.tile([1e-14, 0.4, 0.6 - 1e-14], (len(tree), 1))
        found = Tournament().verify(tree, targets, chooser)
        assert found.node == 0 or tree.tokens[found.node] > 0
        assert found.correction.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    "drafting",
    [prefix_tree([2, 2]), mixed_tree([(1, 1), (1, 1)]), adaptive_depth(2, 2, 0.4),
     tree_shape([-1, 0, 0, 1, 1], "iid"), adaptive_branching(4, 2), mixed_tree([(2, 1), (1, 0)])],
    ids=name_of,
)  # fmt: skip
def test_the_accepted_masses_are_those_of_the_rounds(drafting: Drafting) -> None:
    pair = random_pair(3, drafting.length + 1, np.random.default_rng(4))
    found = tournament_efficiency(*pair, drafting)  # type: ignore[arg-type]
    assert found == pytest.approx(assert_lossless(pair, drafting), abs=1e-12)


DEEP: list[tuple[Drafting, int]] = [
    (prefix_tree([2, 2, 1]), 3),
    (iid_paths(3, 3), 4),
    (mixed_tree([(1, 1), (1, 1), (1, 1)]), 4),
    (adaptive_depth(3, 4, 0.05), 3),
    (adaptive_branching(5, 3, 0.5), 3),
]


@pytest.mark.parametrize("name", ["tournament", "target-only"])
@pytest.mark.parametrize(("drafting", "size"), DEEP, ids=name_of)
def test_the_target_is_kept_where_trees_are_too_many(
    drafting: Drafting, size: int, name: str
) -> None:
    """Prefix by prefix, which the tests of whole rounds tie to what decodes."""
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(size))
    law = prefix_law(*pair, drafting, ALGORITHMS[name])
    assert np.abs(law.tokens - pair[1].joint(drafting.length + 1)).sum() <= TOLERANCE
    assert law.lengths.sum() == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["optimal", "traversal", "target-only", "naive"])
@pytest.mark.parametrize(
    "drafting",
    [mixed_tree([(1, 2), (1, 1)]), adaptive_depth(2, 2, 0.4), top_tree(4, 2)],
    ids=name_of,
)
def test_other_algorithms_on_these_trees(drafting: Drafting, name: str) -> None:
    pair = random_pair(3, 3, np.random.default_rng(5))
    assert_lossless(pair, drafting, ALGORITHMS[name])


def test_tokens_that_the_draft_never_gives_may_be_certain() -> None:
    draft = TabularModel([[1.0, 0.0, 0.0], np.eye(3)])
    _, target = random_pair(3, 2, np.random.default_rng(6))
    for drafting in (mixed_tree([(2, 1)]), mixed_tree([(3, 0)]), top_tree(3, 1)):
        for verification in (Tournament(), Traversal(), TargetOnly(), TopDown()):
            assert_lossless((draft, target), drafting, verification)
    assert assert_lossless((draft, target), mixed_tree([(3, 0)])) == pytest.approx(2.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_beats_target_only_where_nothing_is_drawn(seed: int) -> None:
    """Neither does tournament, nor the optimum at every node: all are the optimum of the tree."""
    rng = np.random.default_rng(seed)
    size, length, nodes = (int(rng.integers(2, 5)) for _ in range(3))
    pair, drafting = random_pair(size, min(length, 3) + 1, rng), top_tree(nodes, min(length, 3))
    best = round_law(*pair, drafting, TargetOnly()).block_efficiency
    for verification in (Tournament(), TopDown()):
        found = round_law(*pair, drafting, verification).block_efficiency
        assert found == pytest.approx(best, abs=1e-10)
    assert drafting_optimum(*pair, drafting) == pytest.approx(best, abs=1e-6)


def test_the_optimum_of_a_drafting_is_that_of_iid_paths() -> None:
    pair = random_pair(3, 3, np.random.default_rng(7))
    found = drafting_optimum(*pair, iid_paths(2, 2))
    assert found == pytest.approx(multipath_optimum(*pair, 2, 2).block_efficiency, abs=2e-5)


@pytest.mark.parametrize("drafting", [without_replacement([2]), hub_pairs(1)], ids=name_of)
def test_dependent_siblings_are_refused(drafting: Drafting) -> None:
    pair = random_pair(3, 3, np.random.default_rng(0))
    with pytest.raises(UnsupportedProblemError, match=f"{drafting.kind_name} draws"):
        round_law(*pair, drafting, Tournament())
    with pytest.raises(UnsupportedProblemError, match="tournament"):
        tournament_efficiency(*pair, drafting)  # type: ignore[arg-type]


laws = st.lists(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 1e-6, 0.1, 1.0]), min_size=2, max_size=6
)


def normalised(values: list[float]) -> FloatArray:
    total = sum(values)
    return np.array(values) / total if total > 1e-3 else np.full(len(values), 1.0 / len(values))


@given(laws, laws, st.floats(0.01, 1.0), st.floats(1e-3, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_tokens_mix_to_the_slot(
    p: list[float], q: list[float], power: float, share: float, weight: float
) -> None:
    """The draft's mixture of the tokens' distribution functions is the slot's, at every edge."""
    size = min(len(p), len(q))
    p_, q_ = normalised(p[:size]), normalised(q[:size])
    draws = Draws(powered(root_score(), power), share, weight, p_, q_)
    masses = draws.masses()
    assert masses.sum() == pytest.approx(share, rel=1e-12)
    cell, offset = draws.split[:2]
    mixed, below = 0.0, slices(draws.score, cell, offset)[0]
    for token in np.flatnonzero(q_):
        child = draws.child(int(token))
        if child.score is None:
            assert masses[token] <= 1e-15
            mixed += q_[token]  # all of it lies below the cut
            continue
        score = child.score
        assert score.wins.sum() == pytest.approx(1.0, abs=1e-12)
        top = float(np.exp(score.left[-1, 0])) + score.masses.sum()
        assert q_[token] * abs(top - 1.0) <= 1e-12
        # the cut, where the score has it among its edges, or lies to one side of it
        place = draws.score.edges[cell] if np.isinf(offset) else np.logaddexp(
            draws.score.edges[cell], offset
        )  # fmt: skip
        count = int(np.sum(score.edges[1:] <= place + 1e-12))
        mixed += q_[token] * (float(np.exp(score.left[-1, 0])) + score.masses[:count].sum())
    if not draws.flat:
        # shares are of the slices' means, which may be near each other
        exact = 1e-12 + 4e-16 / (draws.split.high - draws.split.low)
        assert mixed == pytest.approx(below, abs=exact)
