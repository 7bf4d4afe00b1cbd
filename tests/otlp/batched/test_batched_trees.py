"""Tournament verification on the device: the exact law, the CPU's rule, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from otlp.auditing.gtest import g_test
from otlp.decode import (
    Drafting,
    RandomChooser,
    ShapedDrafting,
    TabularModel,
    Tournament,
    adaptive_branching,
    adaptive_depth,
    iid_paths,
    mixed_tree,
    prefix_tree,
    random_pair,
    top_tree,
)
from otlp.decode.laws.prefix_laws import prefix_law
from otlp.decode.laws.round_laws import RoundLaw, Tally, draft_trees, round_law
from otlp.decode.tree import DraftTree
from otlp.errors import InvalidInputError
from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import Score, cell_of, slices
from tests.otlp.decode.tabular_rounds import (
    EXTREME,
    HARDLY_WANTED,
    ONE_TOKEN,
    TINY,
    UNWANTED,
    Pair,
    assert_law_of,
    cut,
    hardly_wanted,
)
from tests.otlp.decode.test_decode_tournament import GRID, LARGE

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.branches import NodeStates  # noqa: E402
from otlp.batched.score_chains import (  # noqa: E402
    Place,
    draw_places,
    powered,
    root_scores,
    scaled,
)
from otlp.batched.score_chains import cut as chain_cut  # noqa: E402
from otlp.batched.trees import _nodes, ending_at, play  # noqa: E402

SOME: list[tuple[Drafting, int]] = [
    (prefix_tree([2, 1]), 3),
    (mixed_tree([(1, 0), (1, 1), (0, 1)]), 2),
    (adaptive_branching(4, 3, 0.5), 3),
]


class Trees(NamedTuple):
    """Trees of many rows, padded."""

    target: Any
    draft: Any
    tokens: Any
    shape: batched.TreeShape
    nodes: Any


def pack(trees: Sequence[DraftTree], target: TabularModel, dtype: Any = torch.float64) -> Trees:
    """One row for each tree; rows of nodes without children are NaN in the draft."""
    size, width = max(len(tree) for tree in trees), target.tables[0].shape[-1]
    slots = max(tree.slots.nodes.size for tree in trees)
    p, q = np.zeros((len(trees), size, width)), np.full((len(trees), size, width), np.nan)
    tokens, parents = np.full((2, len(trees), slots), batched.PADDING)
    certain, last = np.zeros((2, len(trees), slots), dtype=bool)
    nodes = np.zeros((len(trees), slots), dtype=np.int64)
    target.start(np.empty(0, dtype=np.int64))
    for row, tree in enumerate(trees):
        count = tree.slots.nodes.size
        p[row, : len(tree)] = target.distributions(tree, np.arange(len(tree)))
        for node, distribution in tree.distributions.items():
            q[row, node] = distribution
        tokens[row, :count] = tree.tokens[tree.slots.nodes]
        parents[row, :count], nodes[row, :count] = tree.slots.parents, tree.slots.nodes
        certain[row, :count], last[row, :count] = tree.slots.certain, tree.slots.last
    shape = batched.TreeShape(*map(torch.from_numpy, (parents, certain, last)))
    rows = (torch.from_numpy(part).to(dtype) for part in (p, q))
    return Trees(*rows, torch.from_numpy(tokens), shape, torch.from_numpy(nodes))


def as_score(states: NodeStates, row: int) -> Score:
    """One score as the CPU has it: without the cells that are left out."""
    parts = [part[row].numpy() for part in states.scores]
    edges, widths, wins, masses, powers, left, slopes = parts
    kept = masses > 0.0
    ends = np.logaddexp(edges[kept][-1], widths[kept][-1])
    return Score(
        np.append(edges[kept], ends), widths[kept], wins[kept], masses[kept], powers,
        left[:, kept], slopes[:, kept],
    )  # fmt: skip


def tree_law(
    draft: TabularModel, target: TabularModel, drafting: Drafting, dtype: Any = torch.float64
) -> RoundLaw:
    """Law of a round of `verify_tree`, by enumeration of all trees that can be drafted.

    NodeStates, shares, weights and residuals are its own.  How likely each score is to be the
    largest is an integral, which the CPU works out; that scores are drawn so is a test of its own.
    """
    trees, chances = zip(*draft_trees(draft, drafting), strict=True)
    packed = pack(trees, target, dtype)
    plan = packed.shape.plan(packed.target.device)
    known = _nodes(packed.target, packed.draft, packed.tokens.clamp(min=0), packed.nodes)
    field = play(known, plan)
    size = packed.shape.slots
    players: list[list[tuple[Score, list[tuple[int, float]]]]] = [[] for _ in trees]
    share = field.share.numpy()
    for states, slots in field.candidates:
        for row, slot in enumerate(slots.tolist()):
            if states.live[row, 0]:
                tree, at = divmod(slot, size)
                ends = np.flatnonzero(plan.ending[tree] & (plan.parents[tree] == at))
                below = [(int(end), float(share[tree * size + end])) for end in ends]
                players[tree].append((as_score(states, row), below or [(at, 1.0)]))
    # every way a path can win, and the probability that it does
    leaves, masses = [], []
    for tree, (candidates, chance) in enumerate(zip(players, chances, strict=True)):
        won = best_score([score for score, _ in candidates]) if candidates else np.ones(1)
        won = chance * won / won.sum()
        for (_, below), mass in zip(candidates or [(None, [(0, 1.0)])], won, strict=True):
            whole = sum(part for _, part in below)
            leaves += [tree * size + slot for slot, part in below if part > 0.0]
            masses += [mass * part / whole for _, part in below if part > 0.0]
    tally = Tally(target, drafting.length)
    mass = np.array(masses)
    paths = plan.ancestors.flatten(0, 1)[leaves].numpy()
    rows = np.array(leaves) // size
    for depth in range(drafting.length, -1, -1):
        some = np.flatnonzero(paths[:, depth : depth + 1] >= 0) if depth < paths.shape[1] else []
        if not len(some):
            continue
        slots = torch.from_numpy(rows[some] * size + paths[some, depth])
        stop, residual = (part.numpy() for part in ending_at(known, plan, field, slots))
        for path, tree, accepted, left in zip(
            paths[some], rows[some], mass[some] * stop[:, 0], residual, strict=True
        ):
            if accepted > 0.0:
                text = packed.tokens[tree, path[1 : depth + 1]].tolist()
                tally.add(text, accepted, left / left.sum())
        mass[some] *= 1.0 - stop[:, 0]
    return tally.law


def assert_lossless(pair: Pair, drafting: Drafting, dtype: Any = torch.float64) -> np.ndarray:
    """The target's law, and what is accepted is that of the CPU's rule."""
    law = tree_law(*pair, drafting, dtype)
    assert_law_of(pair[1], law)
    known = prefix_law(*pair, drafting, Tournament())
    np.testing.assert_allclose(law.lengths, known.lengths, rtol=0.0, atol=1e-8)
    return law.lengths


def drafted(pair: Pair, drafting: Drafting, count: int, seed: int = 0) -> list[DraftTree]:
    chooser = RandomChooser(np.random.default_rng(seed))
    pair[0].start(np.empty(0, dtype=np.int64))
    return [drafting.draft(pair[0], chooser) for _ in range(count)]


# --- the exact law ------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafting", "size"), GRID, ids=str)
def test_the_target_is_kept(drafting: Drafting, size: int) -> None:
    rng = np.random.default_rng(size)
    pair = random_pair(size, drafting.length + 1, rng)
    assert_lossless(cut(pair, rng), drafting)


@pytest.mark.slow
@pytest.mark.parametrize(("drafting", "size"), [*GRID, *LARGE], ids=str)
def test_the_target_is_kept_on_more_trees(drafting: Drafting, size: int) -> None:
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(size))
    assert_lossless(pair, drafting)


EXTREMES = [
    iid_paths(2, 2), prefix_tree([2, 1]), mixed_tree([(1, 1), (1, 1)]), adaptive_depth(2, 2, 0.4),
    top_tree(5, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("drafting", "name"),
    [*product(EXTREMES, EXTREME), *product([prefix_tree([2, 2]), UNWANTED[0]], TINY)],
    ids=str,
)
def test_equal_models_disjoint_ones_and_tiny_probabilities(drafting: Drafting, name: str) -> None:
    lengths = assert_lossless((EXTREME | TINY)[name], drafting)
    if name == "equal" and isinstance(drafting, ShapedDrafting):
        assert lengths[-1] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("drafting", "tiny"), HARDLY_WANTED, ids=str)
def test_certain_tokens_that_are_hardly_wanted(drafting: Drafting, tiny: tuple[float, ...]) -> None:
    assert_lossless(hardly_wanted(*tiny), drafting)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_types(dtype: Any) -> None:
    """Of probabilities that all types hold: multiples of 1/16."""
    rng = np.random.default_rng(1)

    def model() -> TabularModel:
        return TabularModel(
            [rng.multinomial(16, np.full(3, 1 / 3), size=(3,) * t or None) / 16 for t in range(3)]
        )

    assert_lossless((model(), model()), mixed_tree([(1, 1), (0, 1)]), dtype)


@pytest.mark.parametrize(("pair_of", "accepted"), [((3, 0), 1.0), ((2, 1), None)])
def test_tokens_that_the_draft_never_gives_may_be_certain(
    pair_of: tuple[int, int], accepted: float | None
) -> None:
    lengths = assert_lossless(ONE_TOKEN, mixed_tree([pair_of]))
    assert accepted is None or lengths[1] == pytest.approx(accepted, abs=1e-12)


# --- what is drawn ------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafting", "size"), SOME, ids=str)
def test_scores_follow_their_distribution_functions(drafting: Drafting, size: int) -> None:
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(2))
    trees = pack(drafted(pair, drafting, 3), pair[1])
    plan = trees.shape.plan(trees.target.device)
    field = play(_nodes(trees.target, trees.draft, trees.tokens.clamp(min=0), trees.nodes), plan)
    levels = (torch.arange(40, dtype=torch.float64) + 0.5) / 40
    for states, slots in field.candidates:
        for row in torch.arange(len(slots))[states.live[:, 0]]:
            places = draw_places(states.scores.take(row.expand(40)), levels).numpy()
            score = as_score(states, int(row))
            bottom = float(np.exp(score.left[-1, 0]))
            for level, place in zip(levels.tolist(), places.tolist(), strict=True):
                if level < bottom:
                    assert place == -np.inf
                    continue
                reached = slices(score, *cell_of(score, place))[0]
                assert reached == pytest.approx(level, abs=1e-12)


@pytest.mark.parametrize("power", [1e-14, 1e-9, 0.3])
def test_scores_of_tiny_powers_are_drawn_by_inversion(power: float) -> None:
    """F = z^h above a cut at z^h = c, taken linearly to [1/2, 1]: z = (c + (1 - c) (2u - 1))^(1/h).

    In z^h the places are known to rounding, whatever h is.
    """
    one = torch.ones(1, 1, dtype=torch.float64)
    for level in (1e-3, 0.5, 1.0 - 1e-6):
        score = powered(root_scores(1, one), power * one)
        parts = chain_cut(score, Place(one.long() - 1, np.log(level) / power * one))
        factor = torch.tensor([[0.0, 0.5 / (1.0 - level)]], dtype=torch.float64)
        upper = scaled(parts, factor, 0.5 * one)
        # the lower slice is left out, and never wins
        for uniform in (0.2, 0.5 + 1e-9, 0.6, 0.9, 1.0 - 1e-9):
            found = float(draw_places(upper, torch.tensor([uniform], dtype=torch.float64))[0])
            if uniform < 0.5:
                assert found == -np.inf
            else:
                wanted = np.log(level + (1.0 - level) * (2.0 * uniform - 1.0))
                assert power * found == pytest.approx(wanted, rel=1e-7, abs=1e-15)


@pytest.mark.parametrize(
    "drafting", [mixed_tree([(1, 2), (1, 1)]), adaptive_depth(3, 2, 0.4)], ids=str
)
def test_sampled_rounds(drafting: Drafting) -> None:
    """Rows of many trees at once; G-tests of false-alarm rate 1e-7 each."""
    pair = random_pair(3, drafting.length + 1, np.random.default_rng(5))
    trees = pack(drafted(pair, drafting, 1_000), pair[1])
    found = batched.verify_tree(*trees[:4], torch.Generator().manual_seed(7), nodes=trees.nodes)
    first = torch.bincount(found.tokens[:, 0], minlength=3).numpy()
    assert not g_test(first, pair[1].joint(1), 1e-7).rejected
    law = round_law(*pair, drafting, Tournament())
    lengths = torch.bincount(found.accepted, minlength=drafting.length + 1).numpy()
    assert not g_test(lengths, law.lengths, 1e-7).rejected
    rows = torch.arange(1_000)
    for depth in range(drafting.length):
        inside = found.accepted > depth
        slot = found.path[:, depth]
        assert ((slot >= 0) == inside).all()
        assert (trees.tokens[rows, slot] == found.tokens[:, depth])[inside].all()
        above = found.path[:, depth - 1] if depth else torch.zeros_like(slot)
        assert (trees.shape.parents[rows, slot] == above)[inside].all()
        assert (found.tokens[:, depth + 1] == batched.PADDING)[found.accepted <= depth].all()
    assert (found.tokens.gather(1, found.accepted[:, None]) >= 0).all()


def random_rows(drafting: Drafting, size: int, count: int) -> tuple[Trees, Any]:
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(8))
    trees = pack(drafted(pair, drafting, count), pair[1])
    return trees, batched.uniforms(trees.tokens, torch.Generator().manual_seed(1),
                                   shape=trees.shape)  # fmt: skip


def test_trees_of_different_shapes_are_verified_as_each_alone() -> None:
    trees, numbers = random_rows(adaptive_depth(3, 3, 0.4), 4, 12)
    assert len(np.unique(trees.shape.parents.numpy(), axis=0)) > 1
    found = batched.verify_tree(*trees[:4], numbers, nodes=trees.nodes)
    for row in range(12):
        some = slice(row, row + 1)
        shape = batched.TreeShape(*(
            part[some] for part in (trees.shape.parents, trees.shape.certain, trees.shape.last)
        ))  # fmt: skip
        rows = [part[some] for part in (trees.target, trees.draft, trees.tokens)]
        deep = trees.shape.length - shape.length
        mine = torch.cat([numbers[some, : numbers.shape[1] - 1 - deep], numbers[some, -1:]], 1)
        alone = batched.verify_tree(*rows, shape, mine, nodes=trees.nodes[some])
        assert alone.accepted[0] == found.accepted[row]
        count = int(alone.accepted[0])
        assert torch.equal(alone.tokens[0, : count + 1], found.tokens[row, : count + 1])
        assert torch.equal(alone.path[0, :count], found.path[row, :count])


def test_one_row_for_each_slot_and_chunks_make_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees, numbers = random_rows(iid_paths(3, 2), 3, 20)
    found = batched.verify_tree(*trees[:4], numbers, nodes=trees.nodes)
    rows = torch.arange(20)[:, None]
    wide = trees.target[rows, trees.nodes], trees.draft[rows, trees.nodes]
    again = batched.verify_tree(*wide, trees.tokens, trees.shape, numbers)
    monkeypatch.setattr("otlp.batched.rows.CHUNK", 200)
    pieces = batched.verify_tree(*trees[:4], numbers, nodes=trees.nodes)
    for other in (again, pieces):
        assert all(torch.equal(*parts) for parts in zip(found, other, strict=True))


def test_no_rows_and_no_drafts() -> None:
    none = torch.empty(0, 1, dtype=torch.int64)
    rows = torch.empty(0, 1, 3)
    found = batched.verify_tree(rows, rows, none, batched.TreeShape(none))
    assert found.tokens.shape == (0, 1) and found.path.shape == (0, 0)
    shape = batched.TreeShape(torch.full((500, 3), -1))
    rows = torch.tensor([0.5, 0.5, 0.0]).expand(500, 3, 3)
    found = batched.verify_tree(
        rows, torch.full_like(rows, torch.nan), torch.full((500, 3), -1), shape,
        torch.Generator().manual_seed(0),
    )  # fmt: skip
    counts = torch.bincount(found.tokens[:, 0], minlength=3).numpy()
    assert counts[2] == 0 and not g_test(counts, np.array([0.5, 0.5, 0.0]), 1e-7).rejected
    assert found.tokens.shape == (500, 1) and not found.accepted.any()


# --- bad input ----------------------------------------------------------------------------------

PARENTS, FLAGS = torch.tensor([[-1, 0, 1]]), torch.tensor([[False, True, False]])
NO_TREES: list[tuple[tuple[Any, ...], str]] = [
    *(((torch.tensor(wrong),), r"row 0, slot . has parent")
      for wrong in ([[0, 0]], [[-1, 1]], [[-1, 0, 3, 0]], [[-1, -2]], [[-1, -1, 1]])),
    ((PARENTS, None, FLAGS), "only drawn slots with nothing below"),
    ((PARENTS[:, :2], FLAGS[:, :2], FLAGS[:, :2]), "only drawn slots with nothing below"),
    *(((part,), "parents")
      for part in (None, [[-1]], PARENTS[0], PARENTS.double(), PARENTS[:, :0])),
    *(((PARENTS, part), "certain") for part in (PARENTS, FLAGS[:, :2], [True])),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "message"), NO_TREES)
def test_shapes_that_are_no_trees(parts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        batched.TreeShape(*parts)
