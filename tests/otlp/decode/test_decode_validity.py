"""Every algorithm keeps the target's law: the next L + 1 tokens, by enumeration, to 1e-10."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from otlp.decode import (
    ALGORITHMS,
    Block,
    BottomUp,
    GreedyMultipath,
    RandomChooser,
    ShapedDrafting,
    Speculative,
    TabularModel,
    TopDown,
    Traversal,
    TwoSlicePaths,
    greedy_distribution,
    hub_pairs,
    iid_paths,
    no_draft,
    play_round,
    prefix_tree,
    random_pair,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.prefix_laws import greedy_efficiency, prefix_law
from otlp.decode.laws.round_laws import round_law
from otlp.decode.laws.slot_laws import tournament_efficiency
from otlp.solution import SolveError
from otlp.solvers import GlobalResolution
from otlp.studies.decoding import Setting

TOLERANCE = 1e-10
EVERY_SIZE = list(product((2, 3, 4), (1, 2, 3), (1, 2, 3)))
"""V, L, K."""
# more would list too many sets of paths as a whole
SIZES = [(2, 1, 3), (2, 2, 3), (2, 3, 2), (3, 1, 3), (3, 2, 2), (4, 1, 3), (4, 2, 2)]
SELECTIONS = [GreedyMultipath(), TwoSlicePaths()]
RULES = ["naive", "recursive-rejection", "k-seq", "optimal", "global-resolution"]
SINGLE = ["autoregressive", "speculative", "block"]
MULTIPLE = [name for name in ALGORITHMS if name not in (*SINGLE, "hub")]
"""All that take K paths; `hub` drafts its own trees."""


def assert_law_of(target, law):
    wanted = target.joint(law.tokens.ndim)
    assert np.abs(law.tokens - wanted).sum() <= TOLERANCE
    assert law.lengths.sum() == pytest.approx(1.0, abs=TOLERANCE)


def assert_lossless(draft, target, drafting, verification):
    """By whole rounds, and prefix by prefix to the same law."""
    law = round_law(draft, target, drafting, verification)
    assert_law_of(target, law)
    again = prefix_law(draft, target, drafting, verification)
    np.testing.assert_allclose(again.tokens, law.tokens, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(again.lengths, law.lengths, rtol=0.0, atol=1e-12)
    return law


def with_zeros(draft, target, rng):
    """Cut tokens off both models at random places, as top-k does, at least one left in each."""
    cut = []
    for model in (draft, target):
        tables = []
        for table in model.tables:
            kept = table * (rng.random(table.shape) < 0.6)
            lost = kept.sum(axis=-1, keepdims=True) == 0.0
            kept = np.where(lost, table, kept)
            tables.append(kept / kept.sum(axis=-1, keepdims=True))
        cut.append(TabularModel(tables, model.name))
    return cut


def slow_if_many(name, size):
    """Both selections pick from all V^(K L) sets of paths; tournament verifies every path."""
    long = name in ("tournament", "two-slice", "greedy-multipath")
    many = size == (4, 3, 3) and long
    return pytest.param(name, size, marks=pytest.mark.slow if many else ())


GRID = [slow_if_many(name, size) for name in MULTIPLE for size in EVERY_SIZE]
GRID += [pytest.param(name, size) for name in SINGLE for size in EVERY_SIZE if size[2] == 1]
GRID += [pytest.param("hub", size) for size in EVERY_SIZE if size[2] == 2]


@pytest.mark.parametrize(("name", "size"), GRID)
def test_every_algorithm_at_every_size(name, size):
    """Exact, all drafts and outcomes: random models, and the same with tokens cut off."""
    vocab_size, length, paths = size
    rng = np.random.default_rng(20)
    drafting = Setting(name, paths, length).drafting
    pair = random_pair(vocab_size, length + 1, rng)
    for draft, target in (pair, with_zeros(*pair, rng)):
        assert_law_of(target, prefix_law(draft, target, drafting, ALGORITHMS[name]))


@pytest.mark.parametrize(
    "verification", [Traversal(), TopDown("max-flow"), BottomUp()], ids=lambda v: v.name
)
@pytest.mark.parametrize("make", [prefix_tree, without_replacement], ids=lambda m: m.__name__)
@pytest.mark.parametrize(
    "branching", [(1,), (2,), (3,), (2, 2), (3, 1), (1, 3), (2, 1, 2)], ids=str
)
@pytest.mark.parametrize("vocab_size", [2, 3, 4])
def test_trees_at_every_size(vocab_size, branching, make, verification):
    rng = np.random.default_rng(21)
    pair = random_pair(vocab_size, len(branching) + 1, rng)
    for draft, target in (pair, with_zeros(*pair, rng)):
        assert_law_of(target, prefix_law(draft, target, make(branching), verification))


@pytest.mark.parametrize("verification", [Speculative(), Block()], ids=lambda v: v.name)
@pytest.mark.parametrize("size", [(2, 3), (3, 2), (4, 3)])
def test_one_path(verification, size):
    vocab_size, length = size
    pair = random_pair(vocab_size, length + 1, np.random.default_rng(1))
    assert_lossless(*pair, iid_paths(1, length), verification)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
@pytest.mark.parametrize("size", SIZES)
def test_paths(verification, size):
    vocab_size, length, paths = size
    pair = random_pair(vocab_size, length + 1, np.random.default_rng(2))
    assert_lossless(*pair, iid_paths(paths, length), verification)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
@pytest.mark.parametrize("seed", range(6))
def test_tokens_that_one_model_never_gives(verification, seed):
    rng = np.random.default_rng(seed)
    pair = with_zeros(*random_pair(3, 3, rng), rng)
    assert_lossless(*pair, iid_paths(2, 2), verification)


@pytest.mark.parametrize("verification", [TwoSlicePaths(), Traversal()], ids=lambda v: v.name)
def test_equal_models_accept_everything(verification):
    _, target = random_pair(3, 3, np.random.default_rng(3))
    law = assert_lossless(target, target, iid_paths(2, 2), verification)
    assert law.block_efficiency == pytest.approx(3.0, abs=1e-12)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
def test_disjoint_models_accept_nothing(verification):
    draft = TabularModel([[1.0, 0.0], [[1.0, 0.0]] * 2])
    target = TabularModel([[0.0, 1.0], [[0.0, 1.0]] * 2])
    law = assert_lossless(draft, target, iid_paths(3, 1), verification)
    assert law.block_efficiency == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
@pytest.mark.parametrize("tiny", [1e-12, 1e-150, 1e-300, 5e-324])
def test_tiny_probabilities(verification, tiny):
    draft = TabularModel([[tiny, 1.0 - tiny], [[tiny, 1.0], [0.5, 0.5]], np.full((2, 2, 2), 0.5)])
    target = TabularModel([[0.5, 0.5], [[0.5, 0.5], [tiny, 1.0]], np.full((2, 2, 2), 0.5)])
    for pair in [(draft, target), (target, draft)]:
        assert_lossless(*pair, iid_paths(3, 2), verification)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
@pytest.mark.parametrize("tiny", [1e-17, 1e-300])
def test_what_is_missing_may_be_less_than_rounding(verification, tiny):
    """At a weight of one, all that the target is missing at a prefix is a tiny mass."""
    same, mixed = [1.0 - 1e-9, 0.0, 1e-9], [0.3, 0.3, 0.4]
    draft = TabularModel([same, [[1.0, 0.0, tiny]] * 3, [[mixed] * 3] * 3])
    target = TabularModel([same, [[1.0, tiny, 0.0]] * 3, [[mixed] * 3] * 3])
    assert_lossless(draft, target, iid_paths(1, 2), verification)
    assert_lossless(draft, target, iid_paths(2, 2), verification)


@pytest.mark.parametrize("verification", [*SELECTIONS, Traversal()], ids=lambda v: v.name)
def test_one_token(verification):
    pair = random_pair(1, 3, np.random.default_rng(0))
    assert assert_lossless(*pair, iid_paths(3, 2), verification).block_efficiency == 3.0


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("size", [(2, 2, 2), (2, 1, 3), (3, 2, 2)])
def test_rules_on_paths(name, size):
    vocab_size, length, paths = size
    pair = random_pair(vocab_size, length + 1, np.random.default_rng(4))
    assert_lossless(*pair, iid_paths(paths, length), ALGORITHMS[name])


TREES = [
    prefix_tree([2, 1]),
    prefix_tree([1, 2]),
    prefix_tree([2, 2]),
    without_replacement([2, 2]),
    hub_pairs(2),
    tree_shape([-1, 0, 0, 1, 1, 3]),
    tree_shape([-1, 0, 0, 1, 1, 2], "greedy"),
]


@pytest.mark.parametrize("drafting", TREES, ids=lambda d: f"{d.kind}{d.shape}")
@pytest.mark.parametrize("verification", [Traversal(), TopDown("max-flow")], ids=lambda v: v.name)
def test_trees(drafting, verification):
    pair = random_pair(2, drafting.length + 1, np.random.default_rng(5))
    assert_lossless(*pair, drafting, verification)


@pytest.mark.parametrize("verification", [Traversal(), TopDown("hub")], ids=lambda v: v.name)
def test_hub_pairs_over_more_tokens(verification):
    pair = random_pair(4, 2, np.random.default_rng(6))
    assert_lossless(*pair, hub_pairs(1), verification)


@pytest.mark.parametrize("name", MULTIPLE)
def test_paths_from_a_sharpened_draft(name):
    pair = random_pair(3, 3, np.random.default_rng(8))
    for adjust in (greedy_distribution, lambda q: q**2 / (q**2).sum()):
        assert_lossless(
            *pair, ShapedDrafting(iid_paths(2, 2).shape, adjust=adjust), ALGORITHMS[name]
        )


def test_fewer_tokens_than_children():
    # two children are asked for where the draft has one token
    draft = TabularModel([[1.0, 0.0, 0.0], np.eye(3)])
    _, target = random_pair(3, 2, np.random.default_rng(7))
    for drafting in (without_replacement([2]), hub_pairs(1)):
        for verification in (Traversal(), TopDown("max-flow")):
            assert_lossless(draft, target, drafting, verification)
    assert_lossless(draft, target, hub_pairs(1), ALGORITHMS["hub"])


def test_plans_that_change_the_law_are_refused():
    published = GlobalResolution(tau=0.3, plan="published")
    pair = random_pair(6, 2, np.random.default_rng(14))
    with pytest.raises(SolveError):
        round_law(*pair, iid_paths(2, 1), TopDown(published))
    assert_lossless(*pair, iid_paths(2, 1), TopDown(published, fallback="k-seq"))


def test_autoregressive():
    pair = random_pair(3, 2, np.random.default_rng(8))
    law = assert_lossless(*pair, no_draft(), ALGORITHMS["autoregressive"])
    assert law.block_efficiency == 1.0


@pytest.mark.parametrize(
    ("selection", "exact"),
    [(GreedyMultipath(), greedy_efficiency), (TwoSlicePaths(), tournament_efficiency)],
)
@pytest.mark.parametrize("size", SIZES)
def test_selection_efficiency_is_that_of_the_outcomes(selection, exact, size):
    vocab_size, length, paths = size
    pair = random_pair(vocab_size, length + 1, np.random.default_rng(9))
    law = round_law(*pair, iid_paths(paths, length), selection)
    efficiency = exact(*pair, iid_paths(paths, length))
    assert efficiency == pytest.approx(law.block_efficiency, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MULTIPLE if name != "tournament"])
@pytest.mark.parametrize("size", [(2, 3, 3), (3, 3, 2), (4, 2, 3)])
def test_whole_rounds_of_more_paths(name, size):
    vocab_size, length, paths = size
    pair = random_pair(vocab_size, length + 1, np.random.default_rng(10))
    assert_lossless(*pair, iid_paths(paths, length), ALGORITHMS[name])


@pytest.mark.slow
@pytest.mark.long
def test_sampled_rounds_follow_the_enumerated_law():
    """Production's random generator on top of the enumerated code; false alarm below 1e-4 in all.

    A likelihood-ratio test for each algorithm, Bonferroni over the family; the seed is fixed.
    """
    names = ["k-seq", "optimal", "greedy-multipath", "two-slice", "traversal"]
    rounds, length = 4000, 2
    draft, target = random_pair(3, length + 1, np.random.default_rng(12))
    wanted = rounds * target.joint(length + 1).ravel()
    for name in names:
        rng = np.random.default_rng(13)
        counts = np.zeros((3,) * (length + 1))
        for _ in range(rounds):
            for model in (draft, target):
                model.start(np.empty(0, dtype=np.int64))
            played = play_round(draft, target, iid_paths(2, length), ALGORITHMS[name], rng)
            text = played.tokens.tolist()
            while len(text) <= length:
                text.append(RandomChooser(rng).choose(target.distribution(text)))
            counts[tuple(text)] += 1
        seen = counts.ravel()
        statistic = 2.0 * np.sum(seen * np.log(np.maximum(seen, 1e-300) / wanted))
        assert chi2.sf(statistic, seen.size - 1) > 1e-4 / len(names), name
