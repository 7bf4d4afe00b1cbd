"""Multi-path rounds: two_slice_step against the CPU's rule, and losslessness by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from otlp.auditing.gtest import g_test
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.paths import path_laws  # noqa: E402
from otlp.batched.two_slice import draw_scores  # noqa: E402
from tests.otlp.batched.batched_rounds import (  # noqa: E402
    below,
    check_decisions,
    check_law,
    distribution,
    enumerate_round,
    laws_of_the_cpu,
    possible,
    tabular,
    tensors,
)

CASES = [
    pytest.param(
        *(seed, vocab, length, paths, kind), marks=[pytest.mark.slow] * (vocab == length == 3)
    )
    for seed, (vocab, length, paths) in enumerate(
        [(2, 1, 1), (2, 2, 2), (3, 2, 2), (4, 2, 3), (3, 3, 3), (2, 3, 3), (4, 1, 3), (3, 3, 1)]
    )
    for kind in ("plain", "masked", "equal", "disjoint")
]


@pytest.mark.parametrize(("seed", "vocab", "length", "paths", "kind"), CASES)
def test_laws_are_those_of_the_cpu(seed, vocab, length, paths, kind) -> None:
    p, q = tabular(seed, vocab, length, kind)
    every = possible(q, vocab, length)
    target, draft, tokens = tensors(p, q, every, length)
    # one path a row: the laws of a path do not depend on the others; K enters through W
    laws, weights = [], []
    for start in range(len(every)):
        some = slice(start, start + 1)
        wide = [part[some].repeat_interleave(paths, 1) for part in (target, draft, tokens)]
        leaf, _, weight = path_laws(*wide)
        laws.append((leaf.edges[0], leaf.density[0], float(leaf.gain[0, 0])))
        weights.append(weight[0])
    nodes = laws_of_the_cpu(p, q, paths, length)
    grid = np.linspace(0.0, 1.0, 41)[1:]
    for j, path in enumerate(map(tuple, every[:, 0])):
        known, ratio = nodes[path]
        edges, density, gain = laws[j]
        assert abs(gain - ratio) < 1e-9 and abs(float(weights[j][-1]) - known.weight) < 1e-9
        found = distribution(edges.numpy(), density.numpy(), grid)
        wanted = [below(known.score, paths * np.log(u)) for u in grid]
        assert np.abs(found - wanted).max() < 1e-9


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("seed", "vocab", "length", "paths", "kind"), CASES)
def test_rounds_are_lossless(seed, vocab, length, paths, kind, dtype) -> None:
    p, q = tabular(seed, vocab, length, kind)
    rounds = enumerate_round(p, q, vocab, length, paths, dtype)
    check_law(rounds, paths)
    check_decisions(rounds)


@pytest.mark.parametrize(("seed", "vocab", "paths"), [(60, 2, 3), (91, 2, 3), (7, 3, 2)])
def test_deep_rounds_are_lossless(seed: int, vocab: int, paths: int) -> None:
    """Rounding leaves some prefixes an empty slice, level after level."""
    p, q = tabular(seed, vocab, 4, "plain")
    check_law(enumerate_round(p, q, vocab, 4, paths), paths)


@pytest.mark.parametrize(("seed", "vocab", "length", "paths"), [(1, 2, 2, 2), (2, 3, 1, 3)])
def test_selected_path_over_all_tuples(seed, vocab, length, paths) -> None:
    """Brute force: P(path selected), from the score cells of all K-tuples, equals Gamma."""
    p, q = tabular(seed, vocab, length, "plain")
    every, mass, leaves, *_ = enumerate_round(p, q, vocab, length, paths)
    grid = np.unique(leaves.edges.numpy())
    laws = [
        distribution(e, d, grid)
        for e, d in zip(leaves.edges.numpy(), leaves.density.numpy(), strict=True)
    ]
    selected = np.zeros(len(every))
    node, weight = np.polynomial.legendre.leggauss(8)
    for chosen in product(range(len(every)), repeat=paths):
        probability = np.prod(mass[list(chosen)])
        for m, j in enumerate(chosen):
            rest = [laws[k] for i, k in enumerate(chosen) if i != m]
            slope = np.diff(laws[j])
            inside = np.ones((grid.size - 1, node.size))
            for law in rest:
                inside *= law[:-1, None] + np.diff(law)[:, None] * (0.5 + 0.5 * node)
            selected[j] += probability * (slope * (inside @ weight) / 2).sum()
    assert np.abs(selected - mass * leaves.gain[:, 0].numpy()).max() < 1e-12


def test_sampled_rounds() -> None:
    """G-test of (accepted prefix, next token) with false-alarm rate 1e-7."""
    vocab, length, paths, count = 3, 2, 3, 4_000
    p, q = tabular(5, vocab, length, "plain")
    rng = np.random.default_rng(6)
    drafts = np.zeros((count, paths, length), dtype=np.int64)
    for i in range(length):
        for prefix in product(range(vocab), repeat=i):
            here = (drafts[..., :i] == np.array(prefix, dtype=np.int64)).all(-1)
            drafts[..., i][here] = rng.choice(vocab, size=int(here.sum()), p=q[prefix])
    target, draft, tokens = tensors(p, q, drafts, length)
    generator = torch.Generator().manual_seed(7)
    found = batched.verify_paths(target, draft, tokens, generator)
    first = torch.bincount(found.tokens[:, 0], minlength=vocab).numpy()
    assert not g_test(first, p[()], 1e-7).rejects(1e-7)
    longer = found.tokens[found.accepted >= 1]
    assert (longer[:, 1] >= 0).all()
    assert (found.tokens.gather(1, found.accepted[:, None]) >= 0).all()
    rows = torch.arange(count)
    kept = tokens[rows, found.path]
    for i in range(length):
        inside = found.accepted > i
        assert (found.tokens[inside, i] == kept[inside, i]).all()
        assert (found.tokens[found.accepted < i, i] == -1).all()


@pytest.mark.parametrize("paths", [2, 4, 8])
def test_thresholds_are_solved_for(paths: int) -> None:
    """On laws with empty cells and cells of tiny mass, where the excess has knees and is flat."""
    rng, nodes, cells, vocab = np.random.default_rng(paths), 500, 5, 20
    inner = np.sort(rng.random((nodes, cells - 1)), 1)
    edges = np.concatenate([np.zeros((nodes, 1)), inner, np.ones((nodes, 1))], 1)
    mass = rng.dirichlet(np.full(cells, 0.5), nodes) * rng.choice([1, 1, 0, 1e-14, 1e-8], cells)
    mass[np.arange(nodes), rng.integers(0, cells, nodes)] += 0.1
    density = mass / mass.sum(1, keepdims=True) / np.diff(edges)
    gain = (density * np.diff(edges**paths)).sum(1, keepdims=True)
    weight = np.where(rng.random((nodes, 1)) < 0.5, 1.0, rng.random((nodes, 1)))
    law = batched.BatchedScoreLaw(*map(torch.from_numpy, (edges, density, gain, weight)))
    p, q = torch.from_numpy(rng.dirichlet(np.full(vocab, 0.3), (2, nodes)))
    found = batched.two_slice_step(law, p, q, paths)
    passed = torch.minimum(
        torch.maximum(law.weight * p, found.lower_mean * q), found.upper_mean * q
    )
    least = torch.minimum(found.lower, found.upper).minimum(found.upper_mean - found.lower_mean)
    told_apart = least[:, 0] > 1e-12
    assert int(told_apart.sum()) > nodes // 2
    assert float((passed.sum(1) - 1.0)[told_apart].abs().max()) < 1e-9


def test_scores_follow_their_law() -> None:
    p, q = tabular(3, 2, 3, "plain")
    leaves = enumerate_round(p, q, 2, 3, 3).leaves
    law = type(leaves)(*(part[:1].repeat(20_000, 1) for part in leaves))
    uniform = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores = draw_scores(law, uniform).numpy()
    found = distribution(leaves.edges[0].numpy(), leaves.density[0].numpy(), scores)
    assert np.abs(found - uniform.numpy()).max() < 1e-12


def round_input():
    p, q = tabular(3, 3, 2, "masked")
    every = possible(q, 3, 2)
    return list(tensors(p, q, every[:4].transpose(1, 0, 2)[:, [0, 1]], 2))


def test_bad_input_is_named() -> None:
    target, draft, tokens = round_input()
    with pytest.raises(InvalidInputError, match="target has shape"):
        batched.verify_paths(target[:, :, :2], draft, tokens)
    with pytest.raises(InvalidInputError, match="one device"):
        batched.verify_paths(target, draft.to("meta"), tokens)
    broken = target.clone()
    broken[0, 1, 2] = float("nan")
    with pytest.raises(InvalidDistributionError, match="target row 0, 1, 2"):
        batched.verify_paths(broken, draft, tokens)
    outside = tokens.clone()
    outside[0, 1, 1] = 3
    with pytest.raises(TokenOutOfRangeError, match="row 0, path 1, level 1"):
        batched.verify_paths(target, draft, outside)
    never = tokens.clone()
    never[0, 0, 0] = int((draft[0, 0, 0] == 0).nonzero()[0])
    with pytest.raises(ZeroProbabilityError, match="row 0, path 0, level 0"):
        batched.verify_paths(target, draft, never)
