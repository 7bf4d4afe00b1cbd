"""Drafting, trees, models and choices; invalid input."""

from fractions import Fraction

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    RandomChooser,
    Sampling,
    Speculative,
    TabularModel,
    TokenTree,
    TwoSlicePaths,
    check_pair,
    enumerate_choices,
    hub_pairs,
    iid_paths,
    no_draft,
    play_round,
    prefix_tree,
    random_pair,
    tree_shape,
    without_replacement,
)
from otlp.decode.laws.round_laws import draft_trees, round_law
from otlp.drafts.by_name import SCHEMES
from otlp.errors import InvalidDistributionError, InvalidInputError, UnsupportedProblemError


def test_enumeration_visits_every_branch():
    def run(chooser):
        first = chooser.choose(np.array([1.0, 0.0, 3.0]))
        return (first, chooser.accept(0.25)) if first == 2 else (first,)

    found = dict(enumerate_choices(run))
    assert found == pytest.approx({(0,): 0.25, (2, True): 0.1875, (2, False): 0.5625})


def test_random_choices_follow_their_masses():
    chooser = RandomChooser(np.random.default_rng(0))
    picks = [chooser.choose(np.array([0.0, 2.0, 0.0, 6.0])) for _ in range(4000)]
    assert set(picks) == {1, 3}
    # five standard deviations
    assert abs(np.mean(np.array(picks) == 3) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4000)


@pytest.mark.parametrize("kind", list(SCHEMES))
def test_draws_follow_the_scheme(kind):
    # Compare the drafted tuples at the root with the scheme of the single-step solvers.
    draft, _ = random_pair(4, 1, np.random.default_rng(1))
    masses = {}
    for tree, chance in draft_trees(draft, tree_shape([-1, 0, 0], kind)):
        drawn = tuple(tree.drawn(0).tolist())
        masses[drawn] = masses.get(drawn, 0.0) + chance
        assert float(tree.schemes[0].probability(list(drawn))) > 0.0
    scheme = next(draft_trees(draft, tree_shape([-1, 0, 0], kind)))[0].schemes[0]
    for drawn, mass in masses.items():
        assert mass == pytest.approx(float(scheme.probability(list(drawn))), abs=1e-14)
    assert sum(masses.values()) == pytest.approx(1.0, abs=1e-14)


def test_equal_paths_share_their_nodes():
    draft = TabularModel([[1.0, 0.0], [[0.5, 0.5]] * 2])
    draft.start(np.array([], dtype=np.int64))
    for tree, _ in draft_trees(draft, iid_paths(3, 2)):
        assert tree.draws[0].tolist() == [1, 1, 1]
        assert len(tree.draws[1]) == 3
        assert len(tree) == 2 + len(set(tree.leaves.tolist()))
        assert [tree.path(leaf).tolist() for leaf in tree.leaves] == [
            [0, int(token)] for token in tree.drawn(1)
        ]


def test_shapes():
    assert iid_paths(2, 2).shape == (-1, 0, 1, 0, 3)
    assert prefix_tree([2, 1]).shape == (-1, 0, 0, 1, 2)
    assert (iid_paths(3, 4).paths, iid_paths(3, 4).length) == (3, 4)
    assert (hub_pairs(3).paths, hub_pairs(3).length) == (8, 3)
    assert (no_draft().paths, no_draft().length) == (0, 0)
    assert iid_paths(3, 2).is_iid_paths and prefix_tree([3]).is_iid_paths
    assert not prefix_tree([1, 3]).is_iid_paths
    assert not tree_shape([-1, 0, 0, 1], "iid").is_iid_paths
    assert not without_replacement([3]).is_iid_paths


def test_rows_must_be_laws():
    with pytest.raises(InvalidDistributionError):
        TabularModel([[0.5, 0.6]])


def test_vocabularies_must_agree():
    draft, _ = random_pair(2, 2, np.random.default_rng(0))
    _, target = random_pair(3, 2, np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match=r"draft has 2 tokens .* target has 3"):
        check_pair(draft, target)
    with pytest.raises(InvalidInputError):
        round_law(draft, target, iid_paths(1, 1), Speculative())


@pytest.mark.parametrize("name", ["speculative", "block", "greedy-multipath", "two-slice"])
def test_unsupported_drafting_says_why(name):
    pair = random_pair(3, 3, np.random.default_rng(0))
    with pytest.raises(UnsupportedProblemError, match="without-replacement draws"):
        round_law(*pair, without_replacement([2, 2]), ALGORITHMS[name])
    for model in pair:
        model.start([])
    rng = np.random.default_rng(0)
    with pytest.raises(UnsupportedProblemError, match="without-replacement draws"):
        play_round(*pair, without_replacement([2, 2]), ALGORITHMS[name], rng)


def test_prefix_beyond_the_tables():
    draft, target = random_pair(2, 2, np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match="up to 5 tokens and the tables cover 2"):
        round_law(draft, target, iid_paths(1, 4), Speculative())
    with pytest.raises(InvalidInputError, match="greater length"):
        draft.distribution([0, 1])


def test_logits_give_the_laws():
    draft, _ = random_pair(3, 2, np.random.default_rng(0))
    draft.start(np.array([], dtype=np.int64))
    tree = TokenTree(np.array([-1, 2]), np.array([-1, 0]))
    nodes = np.array([0, 1])
    laws = Sampling().distributions(draft.logits(tree, nodes))
    np.testing.assert_allclose(laws, draft.distributions(tree, nodes), atol=1e-15)


def test_sampling_cuts_and_sharpens():
    logits = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    np.testing.assert_array_equal(
        Sampling(temperature=0.0).distributions(logits), [[1, 0, 0], [0, 0, 1]]
    )
    np.testing.assert_allclose(Sampling(top_k=2).distributions(logits)[0], [0.625, 0.375, 0.0])
    np.testing.assert_allclose(
        Sampling(top_p=0.6).distributions(logits)[1], [0.0, 0.0, 1.0], atol=1e-15
    )
    cold = np.array([0.25, 0.09, 0.04])
    np.testing.assert_allclose(
        Sampling(temperature=0.5).distributions(logits)[0], cold / cold.sum()
    )


@pytest.mark.parametrize(
    "temperature", [float("inf"), float("nan"), -1e-300, "1", None, Fraction(10**400)]
)
def test_temperatures_that_are_none(temperature):
    with pytest.raises(InvalidInputError, match="temperature must be a finite number >= 0, got"):
        Sampling(temperature)


@pytest.mark.parametrize("temperature", [1e-40, 1e-300, 1e300])
def test_extreme_temperatures(temperature):
    logits = np.array([[1.0, 2.0, -np.inf, 2.0]], dtype=np.float32)
    found = Sampling(temperature).distributions(logits)[0]
    wanted = [0, 0.5, 0, 0.5] if temperature < 1.0 else [1 / 3, 1 / 3, 0, 1 / 3]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_rounds_advance_both_models():
    draft, target = random_pair(3, 8, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for model in (draft, target):
        model.start(np.array([2]))
    text = [2]
    while len(text) < 5:
        played = play_round(draft, target, iid_paths(2, 2), TwoSlicePaths(), rng)
        text += played.tokens.tolist()
        assert draft.context.tolist() == target.context.tolist() == text
        assert len(played.accepted) == len(played.tokens) - 1
    with pytest.raises(InvalidInputError, match="random generator must be a Generator, got 7"):
        play_round(draft, target, iid_paths(2, 2), TwoSlicePaths(), 7)
