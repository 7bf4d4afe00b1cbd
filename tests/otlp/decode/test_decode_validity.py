"""Every algorithm keeps the law of the next L + 1 target tokens, by enumeration, to 1e-10."""

from itertools import product

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Block,
    BottomUp,
    GreedyMultipath,
    Speculative,
    TabularModel,
    TopDown,
    Traversal,
    TwoSlicePaths,
    hub_pairs,
    iid_paths,
    no_draft,
    prefix_tree,
    random_pair,
    tree_shape,
    without_replacement,
)
from otlp.studies.decoding import Setting
from otlp_lab.laws.prefix_laws import prefix_law
from otlp_lab.laws.slot_laws import tournament_efficiency
from tests.otlp.decode.tabular_rounds import (
    EXTREME,
    TINY,
    assert_law_of,
    assert_lossless,
    cut,
    lacking,
    without_memory,
)

ALL_SIZES = list(product((2, 3, 4), (1, 2, 3), (1, 2, 3)))
"""V, L, K."""
EVERY_SIZE = [size for size in ALL_SIZES if np.prod(size) <= 12]
"""Sizes that take at most a fifth of a second each."""
LARGER = [size for size in ALL_SIZES if 12 < np.prod(size) <= 18]
LARGEST = [size for size in ALL_SIZES if np.prod(size) > 18]
# More paths would give too many sets to list.
SIZES = [(2, 1, 3), (2, 2, 3), (2, 3, 2), (3, 1, 3), (3, 2, 2), (4, 1, 3)]
SIZES_OF_RULES = [(2, 2, 2), (2, 1, 3), (3, 2, 2)]
ONE_PATH = [(2, 3), (3, 2), (4, 3)]
PATHS = [GreedyMultipath(), TwoSlicePaths(), Traversal()]
RULES = [
    ALGORITHMS[name]
    for name in ("naive", "recursive-rejection", "k-seq", "optimal", "global-resolution")
]
SINGLE = ["autoregressive", "speculative", "block"]
MULTIPLE = [name for name in ALGORITHMS if name not in (*SINGLE, "hub")]
"""All algorithms for K paths; `hub` drafts its own trees."""


SELECTING = ("tournament", "two-slice", "greedy-multipath")
"""Selections enumerate all V^(K L) sets of paths; tournament verifies every path."""

GRID = {name: [size for size in EVERY_SIZE if size[2] == 1] for name in SINGLE}
GRID |= {name: EVERY_SIZE for name in MULTIPLE}
GRID |= {"hub": [size for size in EVERY_SIZE if size[2] == 2]}


def assert_kept_by_prefixes(pair, rng, drafting, verification):
    """Check all drafts and outcomes exactly, for models and for the same models truncated."""
    for draft, target in (pair, cut(pair, rng)):
        assert_law_of(target, prefix_law(draft, target, drafting, verification))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *GRID.items(),
        *(pytest.param(name, [(4, 3, 3)], marks=pytest.mark.slow) for name in SELECTING),
        *(
            pytest.param(name, LARGEST, marks=[pytest.mark.slow, pytest.mark.long])
            for name in MULTIPLE
        ),
        *(pytest.param(name, LARGER, marks=pytest.mark.slow) for name in MULTIPLE),
        pytest.param("hub", [size for size in LARGER if size[2] == 2], marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_at_every_size(name, sizes):
    for vocab_size, length, paths in sizes:
        rng = np.random.default_rng(20)
        pair = random_pair(vocab_size, length + 1, rng)
        drafting = Setting(name, paths, length).drafting
        assert_kept_by_prefixes(pair, rng, drafting, ALGORITHMS[name])


@pytest.mark.parametrize(
    "verification", [Traversal(), TopDown("max-flow"), BottomUp()], ids=lambda v: v.name
)
@pytest.mark.parametrize("make", [prefix_tree, without_replacement], ids=lambda m: m.__name__)
@pytest.mark.parametrize(
    "branching",
    [
        *((1,), (2,), (3,), (2, 2), (3, 1), (1, 3), (1, 2, 1)),
        pytest.param((2, 1, 2), marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("vocab_size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_trees_at_every_size(vocab_size, branching, make, verification):
    rng = np.random.default_rng(21)
    pair = random_pair(vocab_size, len(branching) + 1, rng)
    assert_kept_by_prefixes(pair, rng, make(branching), verification)


TREES = [
    prefix_tree([2, 1]),
    prefix_tree([1, 2]),
    prefix_tree([2, 2]),
    without_replacement([2, 2]),
    hub_pairs(2),
    tree_shape([-1, 0, 0, 1, 1, 3]),
    tree_shape([-1, 0, 0, 1, 1, 2], "greedy"),
]
ROUNDS = [
    (verification, drafting, vocab_size)
    for verifications, cases in (
        ([Speculative(), Block()], [(iid_paths(1, length), v) for v, length in ONE_PATH]),
        (PATHS, [(iid_paths(paths, length), v) for v, length, paths in SIZES]),
        (RULES, [(iid_paths(paths, length), v) for v, length, paths in SIZES_OF_RULES]),
        ([Traversal(), TopDown("max-flow")], [(tree, 2) for tree in TREES]),
        ([Traversal(), TopDown("hub")], [(hub_pairs(1), 4)]),
        ([ALGORITHMS["autoregressive"]], [(no_draft(), 3)]),
    )
    for verification, (drafting, vocab_size) in product(verifications, cases)
]
SLOW, LONG = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.long]
FOUR = [pytest.param(verification, iid_paths(2, 2), 4, marks=SLOW) for verification in PATHS]
LARGE = [
    pytest.param(
        ALGORITHMS[name],
        iid_paths(paths, length),
        v,
        marks=LONG if v > 2 or name == "global-resolution" else SLOW,
    )
    for name in MULTIPLE
    if name != "tournament"
    for v, length, paths in [(2, 3, 3), (3, 3, 2), (4, 2, 3)]
]


@pytest.mark.parametrize(
    ("verification", "drafting", "vocab_size"), [*ROUNDS, *LARGE, *FOUR], ids=str
)
def test_whole_rounds(verification, drafting, vocab_size):
    """For models and the same models truncated; acceptance is equal path by path."""
    rng = np.random.default_rng(2)
    pair = random_pair(vocab_size, drafting.length + 1, rng)
    law = assert_lossless(pair, drafting, verification)
    if verification.name == "two-slice":
        efficiency = tournament_efficiency(*pair, drafting)
        assert efficiency == pytest.approx(law.block_efficiency, abs=1e-12)
    if verification.name == "greedy-multipath":
        found = prefix_law(*pair, drafting, verification)
        assert found.block_efficiency == pytest.approx(law.block_efficiency, abs=1e-12)
    if verification in PATHS:
        assert_lossless(cut(pair, rng), drafting, verification)


def sharpened(model, power):
    """Return the model at a lower temperature; 0 keeps only the most likely token."""
    tables = [(table / table.max(axis=-1, keepdims=True)) ** power for table in model.tables]
    return TabularModel([table / table.sum(axis=-1, keepdims=True) for table in tables])


@pytest.mark.parametrize("power", [2.0, np.inf])
@pytest.mark.parametrize("name", MULTIPLE)
def test_drafts_at_another_temperature(name, power):
    draft, target = random_pair(3, 3, np.random.default_rng(2))
    assert_lossless((sharpened(draft, power), target), iid_paths(2, 2), ALGORITHMS[name])


LACKING = {f"missing {mass}": lacking(mass) for mass in (1e-17, 1e-300)}
ONE_TOKEN = {"one token": random_pair(1, 3, np.random.default_rng(0))}
SHORT = {"disjoint and short": without_memory([1.0, 0.0], [0.0, 1.0], 2)}
HARD = [
    *((name, pair, iid_paths(2, 2)) for name, pair in (EXTREME | LACKING).items()),
    *((name, pair, iid_paths(3, 2)) for name, pair in (TINY | ONE_TOKEN).items()),
    *((name, pair, iid_paths(1, 2)) for name, pair in LACKING.items()),
    *((name, pair, iid_paths(3, 1)) for name, pair in SHORT.items()),
]


@pytest.mark.parametrize("verification", PATHS, ids=lambda v: v.name)
@pytest.mark.parametrize(
    ("name", "pair", "drafting"),
    [
        pytest.param(*case, marks=SLOW if case[0].startswith(("1e-150", "1e-300")) else ())
        for case in HARD
    ],
    ids=[f"{name}, {d.paths} paths" for name, _, d in HARD],
)
def test_hard_models(name, pair, drafting, verification):
    found = assert_lossless(pair, drafting, verification).block_efficiency
    if name == "one token" or (name == "equal" and not isinstance(verification, GreedyMultipath)):
        assert found == pytest.approx(3.0, abs=1e-12)
    if name.startswith("disjoint"):
        assert found == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("first", [[1.0, 1e-310, 0.0], [1.0, 5e-324, 1e-300], [1.0, 0.0, 0.0]])
def test_fewer_tokens_than_children(first):
    """Two children are requested where the draft has one token, or almost only one."""
    draft = TabularModel([first, [[0.2, 0.3, 0.5]] * 3])
    _, target = random_pair(3, 2, np.random.default_rng(7))
    rules = [ALGORITHMS[name] for name in ("recursive-rejection", "optimal", "naive")]
    for verification in (*rules, Traversal(), TopDown("max-flow")):
        assert_lossless((draft, target), without_replacement([2]), verification)
    for verification in (Traversal(), TopDown("max-flow"), ALGORITHMS["hub"]):
        assert_lossless((draft, target), hub_pairs(1), verification)
