"""Orders that theory fixes between the algorithms, by enumeration."""

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Block,
    GreedyMultipath,
    Martingale,
    Speculative,
    TopDown,
    Traversal,
    iid_paths,
    random_pair,
)
from otlp.decode.exact import round_law, selection_efficiency, top_down_efficiency
from otlp.decode.verification.multipath_lp import multipath_optimum

SLACK = 1e-10
OPTIMUM_SLACK = 1e-6
"""The LP's own tolerance."""


def block_efficiency(pair, length):
    return selection_efficiency(*pair, Martingale(), 1, length)


@pytest.mark.parametrize("seed", range(20))
def test_block_is_at_least_speculative(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pair = random_pair(vocab_size, length + 1, rng)
    block = round_law(*pair, iid_paths(1, length), Block()).block_efficiency
    speculative = round_law(*pair, iid_paths(1, length), Speculative()).block_efficiency
    assert block >= speculative - SLACK


@pytest.mark.parametrize("seed", range(10))
def test_one_path_is_block_verification(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pair = random_pair(vocab_size, length + 1, rng)
    drafting = iid_paths(1, length)
    block = round_law(*pair, drafting, Block())
    for verification in (GreedyMultipath(), Martingale(), Traversal()):
        other = round_law(*pair, drafting, verification)
        np.testing.assert_allclose(other.lengths, block.lengths, atol=1e-13)
    optimum = multipath_optimum(*pair, 1, length).block_efficiency
    assert block.block_efficiency == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize("paths", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_at_every_node_is_best_at_one_node(seed, paths):
    pair = random_pair(4, 2, np.random.default_rng(seed))
    best = top_down_efficiency(*pair, ALGORITHMS["optimal"], paths, 1)
    for name in ("k-seq", "recursive-rejection", "naive"):
        assert best >= top_down_efficiency(*pair, ALGORITHMS[name], paths, 1) - 1e-6
    optimum = multipath_optimum(*pair, paths, 1).block_efficiency
    assert best == pytest.approx(optimum, abs=2e-5)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_exceeds_the_multipath_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 2, 3), (2, 3, 2), (3, 2, 2), (2, 2, 2)][seed % 4]
    pair = random_pair(vocab_size, length + 1, rng)
    optimum = multipath_optimum(*pair, paths, length).block_efficiency + OPTIMUM_SLACK
    for verification in (Martingale(), GreedyMultipath(), Traversal()):
        law = round_law(*pair, iid_paths(paths, length), verification)
        assert law.block_efficiency <= optimum
    for name in ("k-seq", "recursive-rejection", "naive", "optimal"):
        assert top_down_efficiency(*pair, ALGORITHMS[name], paths, length) <= optimum


@pytest.mark.parametrize("seed", range(20))
def test_martingale_is_near_the_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 4, 2), (3, 3, 3), (4, 2, 4), (2, 3, 4)][seed % 4]
    pair = random_pair(vocab_size, length, rng)
    optimum = multipath_optimum(*pair, paths, length).block_efficiency
    martingale = selection_efficiency(*pair, Martingale(), paths, length)
    assert 0.95 * optimum <= martingale <= optimum + OPTIMUM_SLACK


FAMILY = [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (4, 4)]
FAMILY += [(5, 2), (5, 3), (6, 2), (6, 3)]


@pytest.mark.slow
def test_martingale_is_within_one_percent_of_the_optimum_on_average():
    rng = np.random.default_rng(0)
    gaps = []
    for vocab_size, length in FAMILY:
        for paths in (2, 3, 4):
            for noise in (0.5, 1.0, 2.0):
                pair = random_pair(vocab_size, length, rng, noise=noise)
                optimum = multipath_optimum(*pair, paths, length).block_efficiency
                martingale = selection_efficiency(*pair, Martingale(), paths, length)
                assert martingale <= optimum + OPTIMUM_SLACK
                gaps.append(1.0 - martingale / optimum)
    assert len(gaps) >= 100
    assert np.mean(gaps) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("paths", [2, 3, 4])
def test_martingale_is_best_on_average(paths):
    sizes = {2: [(2, 2), (2, 3), (3, 2), (4, 2), (3, 3)], 3: [(2, 2), (2, 3), (3, 2)], 4: [(2, 2)]}
    rng = np.random.default_rng(1)
    names = ["block", "greedy-multipath", "traversal", "martingale"]
    rules = ["naive", "recursive-rejection", "k-seq", "optimal"]
    found = {name: [] for name in names + rules}
    for vocab_size, length in sizes[paths]:
        for noise in (0.5, 1.0, 2.0):
            for _ in range(4):
                pair = random_pair(vocab_size, length + 1, rng, noise=noise)
                found["block"].append(block_efficiency(pair, length))
                for name in ("greedy-multipath", "martingale"):
                    selection = ALGORITHMS[name]
                    found[name].append(selection_efficiency(*pair, selection, paths, length))
                law = round_law(*pair, iid_paths(paths, length), Traversal())
                found["traversal"].append(law.block_efficiency)
                for name in rules:
                    rule = ALGORITHMS[name]
                    assert isinstance(rule, TopDown)
                    found[name].append(top_down_efficiency(*pair, rule, paths, length))
    means = {name: np.mean(values) for name, values in found.items()}
    best = means.pop("martingale")
    assert best > max(means.values()), means
