"""Multi-path rounds: two_slice_step against the CPU rule, and losslessness by enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from otlp.auditing.gtest import g_test
from otlp.decode import TabularModel, iid_paths
from otlp.decode.laws.round_laws import RoundLaw, Tally
from otlp.decode.verification.tournament import Draws, NodeState
from otlp.numerics.score_chains import cell_of, powered, root_score, slices
from otlp_lab.laws.slot_laws import tournament_law
from tests.otlp.decode.tabular_rounds import Pair, assert_law_of, varied

torch = pytest.importorskip("torch")
from torch import Tensor  # noqa: E402

from otlp import batched  # noqa: E402
from otlp.batched.block import stop_probabilities, verify_block  # noqa: E402
from otlp.batched.paths import path_laws, residuals, verify_selected  # noqa: E402
from otlp.batched.two_slice import BatchedScoreLaw, draw_scores, two_slice_step  # noqa: E402


def known_of_the_cpu(pair: Pair, path: Sequence[int], paths: int) -> tuple[NodeState, float]:
    """Return the state of the compiled rule for a path, and Gamma / Q there."""
    known, gain = NodeState(powered(root_score(), 1.0 / paths), 1.0), 1.0
    for depth, token in enumerate(path):
        q, p = (model.distribution(path[:depth]) for model in pair)
        assert known.score is not None
        draws = Draws(known.score, 1.0, known.weight, p, q)
        known, gain = draws.child(token), gain * float(draws.masses()[token] / q[token])
    return known, gain


def dirichlet_pair(seed: int, vocab: int, length: int) -> Pair:
    """Return models for rounds with a given number of draft tokens."""
    rng = np.random.default_rng(seed)
    both = [rng.dirichlet(np.full(vocab, 0.7), (vocab,) * t + (2,)) for t in range(length + 1)]
    target, draft = (TabularModel([rows[..., one, :] for rows in both]) for one in range(2))
    return draft, target


def along(model: TabularModel, paths: np.ndarray, levels: int) -> Tensor:
    """Return distributions along paths of shape (B, K, L) as (B, K, levels, V)."""
    shape = (*paths.shape[:2], model.vocab_size)
    prefixes = [tuple(np.moveaxis(paths[..., :level], -1, 0)) for level in range(levels)]
    rows = [table[prefix] for table, prefix in zip(model.tables, prefixes, strict=False)]
    return torch.from_numpy(np.stack([np.broadcast_to(row, shape) for row in rows], 2))


def given(pair: Pair, paths: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments of path verifiers: target, draft and tokens."""
    length = paths.shape[2]
    return along(pair[1], paths, length + 1), along(pair[0], paths, length), torch.tensor(paths)


def distribution(edges, density, grid):
    return (density * np.clip(grid[:, None] - edges[:-1], 0.0, np.diff(edges))).sum(1)


class Rounds(NamedTuple):
    """Results of a round of K paths for all N possible draft paths."""

    pair: Pair
    given: tuple[Tensor, Tensor, Tensor]
    """One row per path, with K copies of the path."""
    paths: np.ndarray
    mass: np.ndarray
    """Draft probability Q of each path."""
    leaves: BatchedScoreLaw
    stop: Tensor
    """Probability of accepting the prefix of each length, if no longer prefix is accepted."""
    residual: Tensor
    """Weights of the token after each prefix, if the prefix is the longest accepted."""


def enumerate_round(pair: Pair, length: int, paths: int) -> Rounds:
    """Return the laws of all paths, from the functions that the sampler uses."""
    chances = pair[0].joint(length)
    every = np.argwhere(chances > 0.0)
    rows = given(pair, every[:, None].repeat(paths, 1))
    leaves, splits, weights = path_laws(*rows)
    leaves, *splits = (type(one)(*(part[::paths] for part in one)) for one in (leaves, *splits))  # type: ignore[assignment]
    p, q, weights = rows[0][:, 0], rows[1][:, 0], weights[::paths]
    left = residuals(p, q, splits, weights)
    stop = stop_probabilities(left.sum(2), weights)
    # A prefix without residual is the longest accepted only by rounding.
    left = torch.where(left.sum(2, keepdim=True) > 0, left, p[:, :-1])
    residual = torch.cat([left, p[:, -1:]], 1)
    return Rounds(pair, rows, every, chances[chances > 0.0], leaves, stop, residual)


def checked_law(rounds: Rounds) -> RoundLaw:
    """Return the law of a round, extended by the target, after checking it against the target."""
    (_, length), paths = rounds.paths.shape, rounds.given[2].shape[1]
    edges, density = rounds.leaves.edges.numpy(), rounds.leaves.density.numpy()
    # the leaf laws mix to the uniform law, so the largest of K scores selects with W = K u^(K-1)
    grid = np.unique(edges)
    each = [distribution(*law, grid) for law in zip(edges, density, strict=True)]
    assert np.abs(rounds.mass @ each - grid).max() < 1e-12
    gain = (density * np.diff(edges**paths)).sum(1)
    assert (rounds.mass * np.abs(gain - rounds.leaves.gain[:, 0].numpy())).max() < 1e-12
    tally = Tally(rounds.pair[1], length)
    stop, residual = rounds.stop.numpy(), rounds.residual.numpy()
    going = rounds.mass * gain
    for level in range(length, -1, -1):
        for path, mass, left in zip(
            rounds.paths, going * stop[:, level], residual[:, level], strict=True
        ):
            tally.add(path[:level].tolist(), mass, left / left.sum())
        going = going * (1.0 - stop[:, level])
    assert_law_of(rounds.pair[1], tally.law)
    return tally.law


def check_decisions(rounds: Rounds, verify: Callable, margin: float = 1e-12) -> None:
    """Check that decisions change at the thresholds of the law, just below and just above.

    All reached levels are checked, one number at a time.  Acceptance decreases and the token
    increases with the number, so nothing else can change between thresholds.
    """
    length, paths = rounds.paths.shape[1], rounds.given[2].shape[1]
    stop, residual = rounds.stop, rounds.residual
    ends = residual.cumsum(2) / residual.sum(2, keepdim=True)
    rejected = (1.0 - stop).flip(1).cumprod(1).flip(1)[:, 1:]
    reached = torch.nn.functional.pad(rejected, (0, 1), value=1.0) > margin
    # scores, one number per prefix that no prefix passes, and one number for the token
    never = torch.cat([torch.full((paths,), 0.5), torch.ones(length + 2)]).double()
    row, numbers, wanted = [], [], []

    def ask(path: int, places: dict[int, float], accepted: int, token: int) -> None:
        row.append(path)
        numbers.append(never.clone())
        numbers[-1][list(places)] = torch.tensor(list(places.values()), dtype=torch.float64)
        wanted.append((accepted, token))

    for path, level in reached.nonzero().tolist():
        turn = float(stop[path, level])
        for place, taken in ((turn - margin, level), (turn + margin, 0)):
            if 0.0 <= place and level > 0:
                ask(path, {paths + level: place}, taken, -1)
        if turn <= margin:
            continue
        start = 0.0
        for token, end in enumerate(ends[path, level].tolist()):
            for place in (start + margin, end - margin) if end - start > 2 * margin else ():
                ask(path, {paths + level: 0.0, -1: place}, level, token)
            start = end
    tokens, accepted, _ = verify(*(part[row] for part in rounds.given), torch.stack(numbers))
    last = tokens.gather(1, accepted[:, None])[:, 0]
    for taken, token, (level, x) in zip(accepted.tolist(), last.tolist(), wanted, strict=True):
        assert taken == level
        assert x in (-1, token)


SIZES = [(2, 1, 1), (2, 2, 2), (3, 2, 2), (4, 2, 3), (3, 3, 3), (2, 3, 3), (4, 1, 3), (3, 3, 1)]
SIZES += [(4, 3, 1)]
"""V, L, K."""


def marks(size: tuple[int, int, int], kind: str) -> list[pytest.MarkDecorator]:
    """Mark cases of 27 paths as slow, and as long unless tokens are truncated."""
    large = size == (3, 3, 3)
    return [pytest.mark.slow] * large + [pytest.mark.long] * (large and kind != "cut anywhere")


CASES = [
    pytest.param(at, kind, marks=marks(size, kind), id=f"{size} {kind}")
    for (at, size), kind in product(
        enumerate(SIZES), ("random", "same", "cut anywhere", "one token", "likeliest")
    )
]


def case(at: int, kind: str) -> tuple[Pair, int, int]:
    """Return models, L and K."""
    vocab, length, paths = SIZES[at]
    return varied(dirichlet_pair(at, vocab, length), kind), length, paths


@pytest.mark.parametrize(("at", "kind"), CASES)
def test_laws_are_those_of_the_cpu(at: int, kind: str) -> None:
    rounds = enumerate_round(*case(at, kind))
    paths = SIZES[at][2]
    leaves, grid = rounds.leaves, np.linspace(0.0, 1.0, 41)[1:]
    for j, path in enumerate(rounds.paths.tolist()):
        known, gain = known_of_the_cpu(rounds.pair, path, paths)
        assert abs(float(leaves.gain[j]) - gain) < 1e-9
        assert abs(float(leaves.weight[j]) - known.weight) < 1e-9
        found = distribution(leaves.edges[j].numpy(), leaves.density[j].numpy(), grid)
        wanted = [slices(known.score, *cell_of(known.score, paths * np.log(u)))[0] for u in grid]
        assert np.abs(found - wanted).max() < 1e-9


@pytest.mark.parametrize(("at", "kind"), CASES)
def test_rounds_are_lossless_and_accept_as_on_the_cpu(at: int, kind: str) -> None:
    pair, length, paths = case(at, kind)
    rounds = enumerate_round(pair, length, paths)
    known = tournament_law(*pair, iid_paths(paths, length))
    np.testing.assert_allclose(checked_law(rounds).lengths, known.lengths, rtol=0.0, atol=1e-9)
    for verify in (verify_selected, verify_block) if paths == 1 else (verify_selected,):
        check_decisions(rounds, verify)


@pytest.mark.parametrize(("seed", "vocab", "paths"), [(60, 2, 3), (91, 2, 3), (7, 3, 2)])
def test_deep_rounds_are_lossless(seed: int, vocab: int, paths: int) -> None:
    """Rounding leaves some prefixes an empty slice on several levels."""
    checked_law(enumerate_round(dirichlet_pair(seed, vocab, 4), 4, paths))


@pytest.mark.parametrize(("seed", "vocab", "length", "paths"), [(1, 2, 2, 2), (2, 3, 1, 3)])
def test_selected_path_over_all_tuples(seed, vocab, length, paths) -> None:
    """Brute force: P(path selected), from the score cells of all K-tuples, equals Gamma."""
    rounds = enumerate_round(dirichlet_pair(seed, vocab, length), length, paths)
    every, mass, leaves = rounds.paths, rounds.mass, rounds.leaves
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


def drafted(
    seed: int, vocab: int, batch: int, paths: int, length: int
) -> tuple[Pair, tuple[Tensor, Tensor, Tensor], Any]:
    """Return rows of paths drawn from the draft model."""
    pair, generator = dirichlet_pair(seed, vocab, length), torch.Generator().manual_seed(seed)
    drafts = np.zeros((batch, paths, 0), dtype=np.int64)
    for level in range(length):
        rows = along(pair[0], drafts, level + 1)[:, :, -1]
        drafts = np.concatenate([drafts, batched.sample(rows, 1, generator).numpy()], 2)
    return pair, given(pair, drafts), generator


def test_sampled_rounds() -> None:
    """G-test of (accepted prefix, next token) with false-alarm rate 1e-7."""
    (_, target), rows, generator = drafted(5, 3, 4_000, 3, 2)
    found = batched.verify_paths(*rows, generator)
    first = torch.bincount(found.tokens[:, 0], minlength=3).numpy()
    assert not g_test(first, target.joint(1), 1e-7).rejected
    longer = found.tokens[found.accepted >= 1]
    assert (longer[:, 1] >= 0).all()
    assert (found.tokens.gather(1, found.accepted[:, None]) >= 0).all()
    kept = rows[2][torch.arange(4_000), found.path]
    for i in range(2):
        inside = found.accepted > i
        assert (found.tokens[inside, i] == kept[inside, i]).all()
        assert (found.tokens[found.accepted < i, i] == -1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("paths", [1, 3])
def test_rows_of_every_type_are_divided_by_their_sums(paths: int, dtype) -> None:
    _, (*laws, tokens), generator = drafted(9, 11, 64, paths, 3)
    target, draft = (rows.to(dtype) for rows in laws)
    p, q = (rows.double() / rows.double().sum(-1, keepdim=True) for rows in (target, draft))
    numbers = batched.uniforms(tokens, generator)
    found = batched.verify_paths(target, draft, tokens, numbers)
    verify = verify_block if paths == 1 else verify_selected
    for one, other in zip(found, verify(p, q, tokens, numbers), strict=True):
        assert torch.equal(one, other)
    assert ((found.tokens >= 0) == (torch.arange(4) <= found.accepted[:, None])).all()


@pytest.mark.parametrize("paths", [2, 4, 8])
def test_thresholds_are_solved_for(paths: int) -> None:
    """Laws with empty cells and cells of tiny mass, where the excess has kinks or is flat."""
    rng, nodes, cells, vocab = np.random.default_rng(paths), 500, 5, 20
    inner = np.sort(rng.random((nodes, cells - 1)), 1)
    edges = np.concatenate([np.zeros((nodes, 1)), inner, np.ones((nodes, 1))], 1)
    mass = rng.dirichlet(np.full(cells, 0.5), nodes) * rng.choice([1, 1, 0, 1e-14, 1e-8], cells)
    mass[np.arange(nodes), rng.integers(0, cells, nodes)] += 0.1
    density = mass / mass.sum(1, keepdims=True) / np.diff(edges)
    gain = (density * np.diff(edges**paths)).sum(1, keepdims=True)
    weight = np.where(rng.random((nodes, 1)) < 0.5, 1.0, rng.random((nodes, 1)))
    law = BatchedScoreLaw(*map(torch.from_numpy, (edges, density, gain, weight)))
    p, q = torch.from_numpy(rng.dirichlet(np.full(vocab, 0.3), (2, nodes)))
    found = two_slice_step(law, p, q, paths)
    passed = torch.minimum(
        torch.maximum(law.weight * p, found.lower_mean * q), found.upper_mean * q
    )
    least = torch.minimum(found.lower, found.upper).minimum(found.upper_mean - found.lower_mean)
    told_apart = least[:, 0] > 1e-12
    assert int(told_apart.sum()) > nodes // 2
    assert float((passed.sum(1) - 1.0)[told_apart].abs().max()) < 1e-9


def test_scores_follow_their_law() -> None:
    leaves = enumerate_round(dirichlet_pair(3, 2, 3), 3, 3).leaves
    law = type(leaves)(*(part[:1].repeat(20_000, 1) for part in leaves))
    uniform = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores = draw_scores(law, uniform).numpy()
    found = distribution(leaves.edges[0].numpy(), leaves.density[0].numpy(), scores)
    assert np.abs(found - uniform.numpy()).max() < 1e-12
