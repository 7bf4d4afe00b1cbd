"""Multi-path rounds: two_slice_step against a reference, and losslessness by enumeration."""

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
from tests.otlp.batched.batched_reference import prefixes, two_slice_laws

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.paths import block_weights, path_laws  # noqa: E402
from otlp.batched.two_slice import TwoSlice, draw_scores  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tabular(seed: int, vocab: int, length: int, kind: str):
    """Laws after every prefix of at most `length` tokens."""
    rng = np.random.default_rng(seed)
    p, q = {}, {}
    for prefix in [*prefixes(vocab, length), *product(range(vocab), repeat=length)]:
        p[prefix], q[prefix] = rng.dirichlet(np.full(vocab, 0.7), size=2)
        if kind == "equal":
            p[prefix] = q[prefix]
        if kind == "masked":
            p[prefix][rng.integers(vocab)] = 0.0
            q[prefix][rng.integers(vocab)] = 0.0
            p[prefix], q[prefix] = p[prefix] / p[prefix].sum(), q[prefix] / q[prefix].sum()
    return p, q


def tensors(p, q, paths: np.ndarray, length: int, dtype=torch.float64):
    """Rows along each path; paths has shape (B, K, L)."""
    target = [[[p[tuple(x[:i])] for i in range(length + 1)] for x in row] for row in paths]
    draft = [[[q[tuple(x[:i])] for i in range(length)] for x in row] for row in paths]
    return (
        torch.tensor(np.array(target), dtype=dtype),
        torch.tensor(np.array(draft), dtype=dtype),
        torch.tensor(paths),
    )


def possible(q, vocab: int, length: int) -> np.ndarray:
    paths = [
        x
        for x in product(range(vocab), repeat=length)
        if all(q[x[:i]][x[i]] > 0 for i in range(length))
    ]
    return np.array(paths)[:, None]


CASES = [
    pytest.param(
        *(seed, vocab, length, paths, kind), marks=[pytest.mark.slow] * (vocab == length == 3)
    )
    for seed, (vocab, length, paths) in enumerate(
        [(2, 1, 1), (2, 2, 2), (3, 2, 2), (4, 2, 3), (3, 3, 3), (2, 3, 3), (4, 1, 3), (3, 3, 1)]
    )
    for kind in ("plain", "masked", "equal")
]


@pytest.mark.parametrize(("seed", "vocab", "length", "paths", "kind"), CASES)
def test_laws_equal_the_reference(seed, vocab, length, paths, kind) -> None:
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
    nodes, _ = two_slice_laws(p, q, paths, length)
    grid = np.linspace(0.0, 1.0, 41)
    for j, path in enumerate(map(tuple, every[:, 0])):
        node = nodes[path]
        wanted = [node.gain, node.weight, *distribution(node.edges, node.density, grid)]
        edges, density, gain = laws[j]
        found = [gain, float(weights[j][-1]), *distribution(edges.numpy(), density.numpy(), grid)]
        assert np.abs(np.array(found) - wanted).max() < 1e-7


def distribution(edges, density, grid):
    return (density * np.clip(grid[:, None] - edges[:-1], 0.0, np.diff(edges))).sum(1)


def enumerate_round(p, q, vocab: int, length: int, paths: int, dtype=torch.float64):
    """Q, leaf laws, block verification of every path, from the functions that the sampler uses."""
    every = possible(q, vocab, length)
    target, draft, tokens = tensors(p, q, every, length, dtype)
    wide = [part.repeat_interleave(paths, 1) for part in (target, draft)]
    wide = [part.double() / part.double().sum(-1, keepdim=True) for part in wide]
    leaves, splits, weights = path_laws(*wide, tokens.repeat_interleave(paths, 1))
    first = slice(None, None, paths)
    leaves = type(leaves)(*(part[first] for part in leaves))
    splits = [TwoSlice(*(part[first] for part in split)) for split in splits]
    blocks = block_weights(wide[0][:, 0], wide[1][:, 0], splits, weights[first])
    mass = wide[1][:, 0].gather(2, tokens[:, 0, :, None])[..., 0].prod(1)
    return every[:, 0], mass.numpy(), leaves, blocks, wide


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("seed", "vocab", "length", "paths", "kind"), CASES)
def test_rounds_are_lossless(seed, vocab, length, paths, kind, dtype) -> None:
    """Output of a round, continued by the target, against the target: all sequences of L + 1."""
    p, q = tabular(seed, vocab, length, kind)
    every, mass, leaves, blocks, (target, _) = enumerate_round(p, q, vocab, length, paths, dtype)
    # the leaf laws mix to the uniform law, so the largest of K scores selects with W = K u^(K-1)
    edges = leaves.edges.numpy()
    grid = np.unique(edges)
    mixed = sum(
        m * distribution(e, d, grid)
        for m, e, d in zip(mass, edges, leaves.density.numpy(), strict=True)
    )
    assert np.abs(mixed - grid).max() < 1e-12
    powers = edges[:, 1:] ** paths - edges[:, :-1] ** paths
    gain = (leaves.density.numpy() * powers).sum(1)
    assert np.abs(gain - leaves.gain[:, 0].numpy()).max() < 1e-10
    gamma = mass * gain
    assert abs(gamma.sum() - 1.0) < 1e-10

    exact = {}
    for j, path in enumerate(every):
        for i in range(length + 1):
            exact[tuple(path[:i])] = target[j, 0, i].numpy()
    stop, residual = blocks.stop.numpy(), blocks.residual.numpy()
    begun = {}  # law of (accepted prefix, next token)
    for j, path in enumerate(every):
        reject = 1.0
        for i in range(length, -1, -1):
            follow = residual[j, i] / residual[j, i].sum() if residual[j, i].sum() > 0 else 0.0
            added = gamma[j] * reject * stop[j, i] * follow
            key = tuple(path[:i])
            begun[key] = begun.get(key, 0.0) + added
            reject *= 1.0 - stop[j, i]
        assert abs(reject) < 1e-12
    # P(output starts with s) must be the target's P(s), where the output goes on as the target
    for depth in range(1, length + 2):
        for s in product(range(vocab), repeat=depth):
            law = probability(exact, s, 0)
            if law is None:
                continue
            total = sum(
                row[s[len(key)]] * probability(exact, s, len(key) + 1)
                for key, row in begun.items()
                if len(key) < depth and key == s[: len(key)] and np.ndim(row)
            ) + sum(
                np.sum(row) for key, row in begun.items() if len(key) >= depth and key[:depth] == s
            )
            assert abs(total - law) < 1e-10


def probability(exact, s, start: int):
    """Target probability of s[start:] after s[:start]; None if it leaves the drafted prefixes."""
    value = 1.0
    for i in range(start, len(s)):
        if s[:i] not in exact:
            return None if start == 0 else 1.0
        value *= exact[s[:i]][s[i]]
    return value


@pytest.mark.parametrize(("seed", "vocab", "length", "paths"), [(1, 2, 2, 2), (2, 3, 1, 3)])
def test_selected_path_over_all_tuples(seed, vocab, length, paths) -> None:
    """Brute force: P(path selected), from the score cells of all K-tuples, equals Gamma."""
    p, q = tabular(seed, vocab, length, "plain")
    every, mass, leaves, _, _ = enumerate_round(p, q, vocab, length, paths)
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


def test_scores_follow_their_law() -> None:
    p, q = tabular(3, 2, 3, "plain")
    _, _, leaves, _, _ = enumerate_round(p, q, 2, 3, 3)
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


@pytest.mark.slow
def test_compiled_without_graph_breaks() -> None:
    target, draft, tokens = round_input()
    numbers = torch.rand(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(batched.verify_paths, fullgraph=True, backend="aot_eager")
    found = compiled(target, draft, tokens, numbers)
    for one, other in zip(found, batched.verify_paths(target, draft, tokens, numbers), strict=True):
        assert torch.equal(one, other)
