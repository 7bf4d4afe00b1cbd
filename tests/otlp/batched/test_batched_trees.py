"""Tournament verification on the device: the exact law, the CPU's rule, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

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
    tree_shape,
)
from otlp.decode.laws.round_laws import round_law
from otlp.decode.tree import DraftTree
from otlp.errors import (
    InvalidDistributionError,
    InvalidInputError,
    OTLPError,
    TokenOutOfRangeError,
    ZeroProbabilityError,
)
from tests.otlp.decode.tabular_rounds import (
    EXTREME,
    STAIRS,
    TINY,
    UNWANTED,
    Pair,
    assert_law_of,
    cut,
    hardly_wanted,
)
from tests.otlp.decode.test_decode_tournament import GRID, LARGE
from tests.tiny_models import name_of

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.score_chains import (  # noqa: E402
    Place,
    draw_places,
    powered,
    root_scores,
    scaled,
)
from otlp.batched.score_chains import cut as chain_cut  # noqa: E402
from otlp.batched.trees import _nodes, play  # noqa: E402
from tests.otlp.batched.batched_rounds import below  # noqa: E402
from tests.otlp.batched.batched_trees import Trees, as_score, pack, tree_law  # noqa: E402

SOME: list[tuple[Drafting, int]] = [
    (iid_paths(2, 2), 3),
    (prefix_tree([2, 1]), 3),
    (tree_shape([-1, 0, 0, 0, 1, 2], "iid"), 2),
    (mixed_tree([(1, 1), (1, 1)]), 3),
    (mixed_tree([(1, 0), (1, 1), (0, 1)]), 2),
    (adaptive_depth(2, 2, 0.4), 3),
    (adaptive_branching(4, 3, 0.5), 3),
    (top_tree(5, 2), 4),
]


def assert_lossless(pair: Pair, drafting: Drafting, dtype: Any = torch.float64) -> np.ndarray:
    law = tree_law(*pair, drafting, dtype)
    assert_law_of(pair[1], law)
    return law.lengths


def drafted(pair: Pair, drafting: Drafting, count: int, seed: int = 0) -> list[DraftTree]:
    chooser = RandomChooser(np.random.default_rng(seed))
    pair[0].start(np.empty(0, dtype=np.int64))
    return [drafting.draft(pair[0], chooser) for _ in range(count)]


# --- the exact law ------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafting", "size"), GRID, ids=name_of)
def test_the_target_is_kept(drafting: Drafting, size: int) -> None:
    rng = np.random.default_rng(size)
    pair = random_pair(size, drafting.length + 1, rng)
    assert_lossless(cut(pair, rng), drafting)


@pytest.mark.slow
@pytest.mark.parametrize(("drafting", "size"), [*GRID, *LARGE], ids=name_of)
def test_the_target_is_kept_on_more_trees(drafting: Drafting, size: int) -> None:
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(size))
    assert_lossless(pair, drafting)


@pytest.mark.parametrize(("drafting", "size"), SOME, ids=name_of)
def test_the_lengths_are_those_of_the_cpu(drafting: Drafting, size: int) -> None:
    pair = random_pair(size, drafting.length + 1, np.random.default_rng(size + 10))
    found = assert_lossless(pair, drafting)
    known = round_law(*pair, drafting, Tournament()).lengths
    np.testing.assert_allclose(found, known, atol=1e-8)


EXTREMES = product([SOME[at][0] for at in (0, 1, 3, 5, 7)], EXTREME)


@pytest.mark.parametrize(
    ("drafting", "name"), [*EXTREMES, *product([prefix_tree([2, 2]), UNWANTED[0]], TINY)],
    ids=name_of,
)  # fmt: skip
def test_equal_models_disjoint_ones_and_tiny_probabilities(drafting: Drafting, name: str) -> None:
    lengths = assert_lossless((EXTREME | TINY)[name], drafting)
    if name == "equal" and isinstance(drafting, ShapedDrafting):
        assert lengths[-1] == pytest.approx(1.0, abs=1e-12)


TWO_LEVELS = [(1e-8, 0.1), (1e-14, 1e-14)]
THREE_LEVELS = [(0.1, 1e-14, 0.1), (1e-14, 1e-14, 1e-14), (1e-300, 1e-20, 5e-324)]


@pytest.mark.parametrize(
    ("drafting", "tiny"), [*product(UNWANTED, TWO_LEVELS), *product(STAIRS, THREE_LEVELS)],
    ids=name_of,
)  # fmt: skip
def test_a_certain_token_that_is_hardly_wanted(drafting: Drafting, tiny: tuple[float, ...]) -> None:
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


def test_tokens_that_the_draft_never_gives_may_be_certain() -> None:
    draft = TabularModel([[1.0, 0.0, 0.0], np.eye(3)])
    _, target = random_pair(3, 2, np.random.default_rng(6))
    lengths = assert_lossless((draft, target), mixed_tree([(3, 0)]))
    assert lengths[1] == pytest.approx(1.0, abs=1e-12)
    assert_lossless((draft, target), mixed_tree([(2, 1)]))


# --- what is drawn ------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafting", "size"), [SOME[1], SOME[4], SOME[6]], ids=name_of)
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
                assert below(score, place) == pytest.approx(level, abs=1e-12)


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
    "drafting", [mixed_tree([(1, 2), (1, 1)]), adaptive_depth(3, 2, 0.4)], ids=name_of
)
def test_sampled_rounds(drafting: Drafting) -> None:
    """Rows of many trees at once; G-tests of false-alarm rate 1e-7 each."""
    pair = random_pair(3, drafting.length + 1, np.random.default_rng(5))
    trees = pack(drafted(pair, drafting, 1_000), pair[1])
    found = batched.verify_tree(*trees[:4], torch.Generator().manual_seed(7), nodes=trees.nodes)
    first = torch.bincount(found.tokens[:, 0], minlength=3).numpy()
    assert not g_test(first, pair[1].joint(1), 1e-7).rejects(1e-7)
    law = round_law(*pair, drafting, Tournament())
    lengths = torch.bincount(found.accepted, minlength=drafting.length + 1).numpy()
    assert not g_test(lengths, law.lengths, 1e-7).rejects(1e-7)
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


def test_paths_are_those_of_verify_paths() -> None:
    """Acceptance agrees with `verify_paths` on the same drafts, in the mean: other numbers."""
    trees, _ = random_rows(iid_paths(3, 2), 3, 1_000)
    generator = torch.Generator().manual_seed(2)
    own = batched.verify_tree(*trees[:4], generator, nodes=trees.nodes).accepted.double()
    # slots level by level become paths
    rows = torch.arange(1_000)[:, None, None]
    leaf = trees.shape.plan(trees.tokens.device).ancestors
    ends = leaf[leaf[:, :, 2] >= 0].view(1_000, 3, 3)
    nodes = trees.nodes[rows, ends]
    paths = trees.tokens[rows, ends[..., 1:]]
    other = batched.verify_paths(
        trees.target[rows, nodes], trees.draft[rows, nodes][:, :, :2], paths, generator
    ).accepted.double()
    gap = float(own.mean() - other.mean())
    assert abs(gap) < 6.0 * float((own.var() + other.var()).sqrt()) / 1_000**0.5


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
    assert counts[2] == 0 and not g_test(counts, np.array([0.5, 0.5, 0.0]), 1e-7).rejects(1e-7)
    assert found.tokens.shape == (500, 1) and not found.accepted.any()


# --- bad input ----------------------------------------------------------------------------------


def arguments() -> dict[str, Any]:
    """One row: a certain token 0 with a drawn one below, and two drawn tokens."""
    rows = torch.full((1, 5, 4), 0.25)
    shape = batched.TreeShape(
        torch.tensor([[-1, 0, 0, 0, 1]]), torch.tensor([[False, True, False, False, False]])
    )
    return {
        "target": rows, "draft": rows, "draft_tokens": torch.tensor([[-1, 0, 1, 1, 3]]),
        "shape": shape,
    }  # fmt: skip


def changed(name: str, values: dict[tuple[int, ...], float]) -> dict[str, Any]:
    given = arguments()
    given[name] = given[name].clone()
    for place, value in values.items():
        given[name][place] = value
    return given


def all_certain() -> dict[str, Any]:
    parents = arguments()["shape"].parents
    return arguments() | {"shape": batched.TreeShape(parents, torch.ones(1, 5, dtype=torch.bool))}


REFUSED: list[tuple[Callable[[], dict[str, Any]], type[OTLPError], str]] = [
    (lambda: arguments() | {"shape": None}, InvalidInputError, "shape is a NoneType"),
    (lambda: arguments() | {"target": None}, InvalidInputError, "target is a NoneType"),
    (lambda: arguments() | {"target": torch.full((1, 4, 4), 0.25)}, InvalidInputError,
     r"target has shape \(1, 4, 4\)"),
    (lambda: arguments() | {"target": torch.full((1, 0, 4), 0.25)}, InvalidInputError, "target"),
    (lambda: arguments() | {"draft": torch.full((1, 5, 3), 0.25)}, InvalidInputError, "draft has"),
    (lambda: arguments() | {"draft": torch.full((2, 5, 4), 0.25)}, InvalidInputError, "draft has"),
    (lambda: arguments() | {"draft": torch.full((1, 5, 4), 0.25, device="meta")},
     InvalidInputError, "one device"),
    (lambda: arguments() | {"draft": torch.ones(1, 5, 4).long()}, InvalidInputError, "float16"),
    (lambda: arguments() | {"draft_tokens": torch.tensor([[-1, 0, 1, 1]])}, InvalidInputError,
     r"draft_tokens has shape \(1, 4\)"),
    (lambda: arguments() | {"draft_tokens": torch.ones(1, 5)}, InvalidInputError, "draft_tokens"),
    (lambda: arguments() | {"nodes": torch.tensor([[0, 1, 2, 2]])}, InvalidInputError, "nodes has"),
    (lambda: arguments() | {"nodes": torch.tensor([[0, 1, 2, 2, 5]])}, InvalidInputError,
     r"nodes row 0, slot 4: node 5 lies outside \[0, 5\)"),
    (lambda: arguments() | {"nodes": torch.tensor([[0, 1, 2, 2, 2]])}, InvalidInputError,
     "slot 2: node 2 stands for two different prefixes"),
    (lambda: arguments() | {"validate": 1}, InvalidInputError, "validate is"),
    (lambda: arguments() | {"generator": torch.zeros(1, 9, dtype=torch.float64)},
     InvalidInputError, r"must be \(1, 10\)"),
    (lambda: changed("target", {(0, 4, 0): torch.nan}), InvalidDistributionError,
     "target row 0, 4"),
    (lambda: changed("draft", {(0, 0, 0): torch.nan}), InvalidDistributionError, "draft row 0, 0"),
    (lambda: changed("draft", {(0, 1, 0): 0.5}), InvalidDistributionError, "draft row 0, 1"),
    (lambda: changed("draft_tokens", {(0, 4): 4}), TokenOutOfRangeError, "slot 4: token id 4"),
    (lambda: changed("draft_tokens", {(0, 2): -1}), TokenOutOfRangeError, "slot 2: token id -1"),
    (lambda: changed("draft_tokens", {(0, 3): 0}), ZeroProbabilityError,
     "slot 3: token 0 is also that of a certain sibling"),
    (lambda: changed("draft", {(0, 0, 1): 0.0, (0, 0, 2): 0.5}), ZeroProbabilityError,
     "slot 2: token 1 has draft probability 0"),
    (all_certain, ZeroProbabilityError, "name certain tokens once"),
    (lambda: changed("target", {(0, 3, 0): 0.0, (0, 3, 1): 0.5}), InvalidInputError,
     "nodes 2 and 3 have the same prefix"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_bad_input_is_named(given: Any, kind: type[OTLPError], message: str) -> None:
    batched.verify_tree(**arguments())
    batched.verify_tree(**changed("draft", {(0, 4, 0): torch.nan}))  # nothing was drawn there
    with pytest.raises(kind, match=message):
        batched.verify_tree(**given())


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
