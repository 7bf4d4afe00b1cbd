"""Inequalities between algorithms that follow from theory, by enumeration."""

from typing import Any

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Block,
    GreedyMultipath,
    Speculative,
    Traversal,
    TwoSlicePaths,
    iid_paths,
    mixed_tree,
    no_draft,
    prefix_tree,
    random_pair,
    tree_shape,
)
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.laws.round_laws import round_law
from otlp_lab.design.adaptive import adaptive_branching, adaptive_depth
from otlp_lab.laws.drafting_lp import drafting_optimum
from otlp_lab.laws.prefix_laws import prefix_law
from otlp_lab.laws.slot_laws import tournament_efficiency
from tests.otlp.decode.tabular_rounds import cut

SLACK = 1e-10
OPTIMUM_SLACK = 1e-6
"""Tolerance of the LP."""


def efficiency(pair: tuple[Any, Any], name, paths, length):
    return prefix_law(*pair, iid_paths(paths, length), ALGORITHMS[name]).block_efficiency


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
)
def test_one_path_is_block_verification_and_at_least_speculative(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pair = random_pair(vocab_size, length + 1, rng)
    drafting = iid_paths(1, length)
    block = round_law(*pair, drafting, Block())
    for verification in (GreedyMultipath(), TwoSlicePaths(), Traversal()):
        other = round_law(*pair, drafting, verification)
        np.testing.assert_allclose(other.lengths, block.lengths, atol=1e-13)
    optimum = multipath_optimum(*pair, 1, length)
    assert block.block_efficiency == pytest.approx(optimum, abs=1e-6)
    speculative = round_law(*pair, drafting, Speculative()).block_efficiency
    assert block.block_efficiency >= speculative - SLACK


@pytest.mark.parametrize("paths", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_at_every_node_is_best_at_one_node(seed, paths):
    pair = random_pair(4, 2, np.random.default_rng(seed))
    best = efficiency(pair, "optimal", paths, 1)
    for name in ("k-seq", "recursive-rejection", "naive"):
        assert best >= efficiency(pair, name, paths, 1) - 1e-6
    optimum = multipath_optimum(*pair, paths, 1)
    assert best == pytest.approx(optimum, abs=2e-5)


OTHERS = ["naive", "recursive-rejection", "k-seq", "optimal", "traversal", "greedy-multipath"]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))]
)
def test_nothing_exceeds_the_multipath_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 2, 3), (2, 3, 2), (3, 2, 2), (4, 2, 3)][seed % 4]
    pair = random_pair(vocab_size, length + 1, rng)
    optimum = multipath_optimum(*pair, paths, length) + OPTIMUM_SLACK
    for name in ["two-slice", *OTHERS]:
        assert efficiency(pair, name, paths, length) <= optimum, name


@pytest.mark.parametrize("seed", range(20))
def test_martingale_is_near_the_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 4, 2), (3, 3, 3), (4, 2, 4), (2, 3, 4)][seed % 4]
    pair = random_pair(vocab_size, length + 1, rng)
    optimum = multipath_optimum(*pair, paths, length)
    two_slice = tournament_efficiency(*pair, iid_paths(paths, length))
    assert 0.95 * optimum <= two_slice <= optimum + OPTIMUM_SLACK


FAMILY = [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (4, 4)]
FAMILY += [(5, 2), (5, 3), (6, 2), (6, 3)]
"""V and L; with three pairs of models for each, and K from 2 to 4, 111 in all."""
TOO_LARGE = {(4, 5, 3), (4, 6, 3)}
"""Omitted K, V and L: the LP and the V^K draws at each prefix take a minute."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("paths", [2, 3, 4])
def test_martingale_is_near_the_optimum_and_above_all_others(paths):
    """Within 1% of the multi-path LP on average, with the largest mean of all algorithms."""
    rng = np.random.default_rng(paths)
    optima = []
    found = {name: [] for name in ["block", "two-slice", *OTHERS]}
    for vocab_size, length in FAMILY:
        for noise in (0.5, 1.0, 2.0) if (paths, vocab_size, length) not in TOO_LARGE else ():
            pair = random_pair(vocab_size, length + 1, rng, noise=noise)
            optima.append(multipath_optimum(*pair, paths, length))
            for name, values in found.items():
                values.append(efficiency(pair, name, 1 if name == "block" else paths, length))
                assert values[-1] <= optima[-1] + OPTIMUM_SLACK, name
    shares = {name: np.array(values) / optima for name, values in found.items()}
    assert np.mean(1.0 - shares["two-slice"]) < 0.01
    means = {name: np.mean(values) for name, values in found.items()}
    best = means.pop("two-slice")
    assert best > max(means.values()), means


PREFIX_TREES = [(2, [2, 2]), (2, [2, 1, 2]), (2, [1, 2, 2]), (3, [2, 1]), (3, [1, 2]), (4, [2, 1])]


@pytest.mark.slow
@pytest.mark.long
def test_tournament_on_prefix_trees_is_near_the_optimum_and_above_exact_top_down():
    """On average over 102 pairs: within 1% of the LP of the drafting, and above exact top-down."""
    found = []
    for size, branching in PREFIX_TREES:
        for seed in range(17):
            rng, noise = np.random.default_rng(seed), (0.5, 1.0, 2.0)[seed % 3]
            pair = random_pair(size, len(branching) + 1, rng, noise=noise)
            drafting = prefix_tree(branching)
            own = tournament_efficiency(*pair, drafting)
            other = prefix_law(*pair, drafting, ALGORITHMS["optimal"]).block_efficiency
            best = drafting_optimum(*pair, drafting)
            assert own <= best + OPTIMUM_SLACK
            found.append((own, other, best))
    own, other, best = np.array(found).T
    assert own.mean() > other.mean()
    assert np.mean(1.0 - own / best) < 0.01


EVERY_KIND = [
    no_draft(),
    iid_paths(2, 3),
    prefix_tree([2, 2]),
    tree_shape([-1, 0, 0, 0, 1, 2], "iid"),
    mixed_tree([(2, 0), (2, 0)]),
    mixed_tree([(1, 2)]),
    mixed_tree([(1, 1), (1, 1), (1, 1)]),
    mixed_tree([(0, 2), (2, 1)]),
    mixed_tree([(2, 0), (0, 1)]),
    mixed_tree([(1, 0), (1, 2), (0, 1)]),
    adaptive_depth(2, 3, 0.3),
    adaptive_branching(5, 3, 0.5),
]


@pytest.mark.parametrize("drafting", EVERY_KIND, ids=str)
@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_tournament_is_at_least_target_only(size, drafting):
    """On each of 144 pairs of models, for certain and drawn children."""
    for seed in range(4):
        rng = np.random.default_rng([size, seed])
        pair = random_pair(size, drafting.length + 1, rng, noise=(0.5, 1.0, 2.0, 4.0)[seed])
        if seed == 3:
            pair = cut(pair, rng)
        other = prefix_law(*pair, drafting, ALGORITHMS["target-only"]).block_efficiency
        assert tournament_efficiency(*pair, drafting) >= other - SLACK
