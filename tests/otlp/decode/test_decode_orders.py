"""Orders that theory fixes between the algorithms, by enumeration."""

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Block,
    GreedyMultipath,
    MultipathMartingale,
    Speculative,
    Traversal,
    iid_paths,
    random_pair,
)
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.laws.prefix_laws import prefix_law, selection_efficiency
from otlp.decode.laws.round_laws import round_law
from otlp.decode.verification.path_selection import PathSelection

SLACK = 1e-10
OPTIMUM_SLACK = 1e-6
"""The LP's own tolerance."""


def efficiency(pair, name, paths, length):
    algorithm = ALGORITHMS[name]
    if isinstance(algorithm, PathSelection):
        return selection_efficiency(*pair, algorithm, paths, length)
    return prefix_law(*pair, iid_paths(paths, length), algorithm).block_efficiency


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
    for verification in (GreedyMultipath(), MultipathMartingale(), Traversal()):
        other = round_law(*pair, drafting, verification)
        np.testing.assert_allclose(other.lengths, block.lengths, atol=1e-13)
    optimum = multipath_optimum(*pair, 1, length).block_efficiency
    assert block.block_efficiency == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize("paths", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_at_every_node_is_best_at_one_node(seed, paths):
    pair = random_pair(4, 2, np.random.default_rng(seed))
    best = efficiency(pair, "optimal", paths, 1)
    for name in ("k-seq", "recursive-rejection", "naive"):
        assert best >= efficiency(pair, name, paths, 1) - 1e-6
    optimum = multipath_optimum(*pair, paths, 1).block_efficiency
    assert best == pytest.approx(optimum, abs=2e-5)


OTHERS = ["naive", "recursive-rejection", "k-seq", "optimal", "traversal", "greedy-multipath"]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_exceeds_the_multipath_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 2, 3), (2, 3, 2), (3, 2, 2), (4, 2, 3)][seed % 4]
    pair = random_pair(vocab_size, length + 1, rng)
    optimum = multipath_optimum(*pair, paths, length).block_efficiency + OPTIMUM_SLACK
    for name in ["martingale", *OTHERS]:
        assert efficiency(pair, name, paths, length) <= optimum, name


@pytest.mark.parametrize("seed", range(20))
def test_martingale_is_near_the_optimum(seed):
    rng = np.random.default_rng(seed)
    vocab_size, length, paths = [(2, 4, 2), (3, 3, 3), (4, 2, 4), (2, 3, 4)][seed % 4]
    pair = random_pair(vocab_size, length, rng)
    optimum = multipath_optimum(*pair, paths, length).block_efficiency
    martingale = selection_efficiency(*pair, MultipathMartingale(), paths, length)
    assert 0.95 * optimum <= martingale <= optimum + OPTIMUM_SLACK


FAMILY = [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (4, 4)]
FAMILY += [(5, 2), (5, 3), (6, 2), (6, 3)]
"""V and L; with three pairs of models for each, and K from 2 to 4, 111 in all."""
TOO_LARGE = {(4, 5, 3), (4, 6, 3)}
"""K, V and L left out: a minute of the LP and of V^K draws at each prefix."""


@pytest.mark.slow
@pytest.mark.parametrize("paths", [2, 3, 4])
def test_martingale_is_near_the_optimum_and_above_all_others(paths):
    """Within 1% of the multi-path LP on average; of all algorithms the largest mean."""
    rng = np.random.default_rng(paths)
    optima = []
    found = {name: [] for name in ["block", "martingale", *OTHERS]}
    for vocab_size, length in FAMILY:
        for noise in (0.5, 1.0, 2.0) if (paths, vocab_size, length) not in TOO_LARGE else ():
            pair = random_pair(vocab_size, length + 1, rng, noise=noise)
            optima.append(multipath_optimum(*pair, paths, length).block_efficiency)
            for name, values in found.items():
                values.append(efficiency(pair, name, 1 if name == "block" else paths, length))
                assert values[-1] <= optima[-1] + OPTIMUM_SLACK, name
    shares = {name: np.array(values) / optima for name, values in found.items()}
    assert np.mean(1.0 - shares["martingale"]) < 0.01
    means = {name: np.mean(values) for name, values in found.items()}
    best = means.pop("martingale")
    assert best > max(means.values()), means
