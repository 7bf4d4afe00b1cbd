"""Shared code for tests of rounds: hard tabular models, and checks of losslessness."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from otlp.decode import (
    Drafting,
    Sampling,
    TabularModel,
    Verification,
    mixed_tree,
    random_pair,
)
from otlp.decode.laws.round_laws import RoundLaw, round_law
from otlp.distribution import FloatArray
from otlp_lab.design import WrittenText
from otlp_lab.design.mixed_nodes import mixed_shape
from otlp_lab.laws.prefix_laws import prefix_law
from tests.instances import distributions

Pair = tuple[TabularModel, TabularModel]
TOLERANCE = 1e-10


def assert_law_of(target: TabularModel, law: RoundLaw) -> None:
    assert np.abs(law.tokens - target.joint(law.tokens.ndim)).sum() <= TOLERANCE
    assert law.lengths.sum() == pytest.approx(1.0, abs=TOLERANCE)


def assert_lossless(pair: Pair, drafting: Drafting, verification: Verification) -> RoundLaw:
    """Check losslessness by whole rounds, and prefix by prefix."""
    law = round_law(*pair, drafting, verification)
    assert_law_of(pair[1], law)
    again = prefix_law(*pair, drafting, verification)
    np.testing.assert_allclose(again.tokens, law.tokens, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(again.lengths, law.lengths, rtol=0.0, atol=1e-12)
    return law


def cut(pair: Pair, rng: np.random.Generator) -> Pair:
    """Truncate both models at random prefixes, as top-k does, keeping at least one token."""
    found = []
    for model in pair:
        tables = []
        for table in model.tables:
            kept = table * (rng.random(table.shape) < 0.6)
            kept = np.where(kept.sum(axis=-1, keepdims=True) == 0.0, table, kept)
            tables.append(kept / kept.sum(axis=-1, keepdims=True))
        found.append(TabularModel(tables, model.name))
    return found[0], found[1]


def without_tokens(model: TabularModel, tokens: Iterable[int]) -> TabularModel:
    """Return the model without some tokens."""
    gone = list(tokens)
    kept = [np.where(np.isin(np.arange(t.shape[-1]), gone), 0.0, t) for t in model.tables]
    return TabularModel([table / table.sum(axis=-1, keepdims=True) for table in kept])


PAIRS = ["random", "same", "apart", "draft cut", "target cut"]


def varied(pair: Pair, kind: str) -> Pair:
    """Return variants: the pair, the target twice, greedy drafts, or both without some tokens."""
    if kind == "same":
        return TabularModel(pair[1].tables), pair[1]
    if kind == "likeliest":
        size = pair[0].vocab_size
        return TabularModel([np.eye(size)[one.argmax(-1)] for one in pair[0].tables]), pair[1]
    if kind == "cut anywhere":
        return cut(pair, np.random.default_rng(0))
    others = range(1, pair[0].vocab_size)
    gone: dict[str, tuple[Iterable[int], Iterable[int]]] = {
        "apart": ([0], others), "one token": (others, [0]),
        "draft cut": ([1], []), "target cut": ([], [0]),
    }  # fmt: skip
    for_draft, for_target = gone.get(kind, ([], []))
    return without_tokens(pair[0], for_draft), without_tokens(pair[1], for_target)


def make_pair(kind: str, size: int, length: int) -> Pair:
    """Return models for rounds with a given number of draft tokens."""
    return varied(random_pair(size, length + 1, np.random.default_rng(size + length)), kind)


def every_text(
    draft: TabularModel, target: TabularModel, length: int
) -> list[tuple[WrittenText, float]]:
    """Return all texts of a given length with their target probabilities."""
    found = []
    for tokens in product(range(target.vocab_size), repeat=length):
        chance = float(target.joint(length)[tokens])
        if chance > 0.0:
            p, q = (
                np.stack([model.distribution(tokens[:at]) for at in range(length)])
                for model in (target, draft)
            )
            found.append((WrittenText(np.array(tokens), p, q), chance))
    return found


NAMES: Any = {"draft": "d", "target": "t", "sampling": Sampling()}
"""Names and sampling of the models that generate texts."""


def without_memory(q: FloatArray | list[float], p: FloatArray | list[float], length: int) -> Pair:
    """Return models with the same two distributions after every text."""
    draft, target = (
        TabularModel([np.broadcast_to(row, (len(row),) * (t + 1)) for t in range(length)])
        for row in (q, p)
    )
    return draft, target


def tiny(mass: float) -> Pair:
    """Return models with a tiny probability in one model where the other has 0.5 or almost 1."""
    draft = TabularModel([[mass, 1.0 - mass], [[mass, 1.0], [0.5, 0.5]], np.full((2, 2, 2), 0.5)])
    target = TabularModel([[0.5, 0.5], [[0.5, 0.5], [mass, 1.0]], np.full((2, 2, 2), 0.5)])
    return draft, target


def lacking(mass: float) -> Pair:
    """Return models where the missing target mass at a prefix is tiny, at weight one."""
    same, mixed = [1.0 - 1e-9, 0.0, 1e-9], [0.3, 0.3, 0.4]
    draft = TabularModel([same, [[1.0, 0.0, mass]] * 3, [[mixed] * 3] * 3])
    target = TabularModel([same, [[1.0, mass, 0.0]] * 3, [[mixed] * 3] * 3])
    return draft, target


_, TARGET = random_pair(3, 3, np.random.default_rng(3))
EXTREME: dict[str, Pair] = {
    "equal": (TARGET, TARGET),
    "disjoint": without_memory([1.0, 0.0, 0.0], [0.0, 0.5, 0.5], 3),
}
TINY: dict[str, Pair] = {}
for mass in (1e-12, 1e-150, 1e-300, 5e-324):
    TINY[f"{mass} in the draft"] = tiny(mass)
    TINY[f"{mass} in the target"] = tiny(mass)[::-1]


def hardly_wanted(*tiny: float) -> Pair:
    """Return models with a small target mass on the most likely draft token, by depth."""
    draft, target = random_pair(3, len(tiny) + 1, np.random.default_rng(0))
    tables = list(target.tables)
    for depth, little in enumerate(tiny):
        wanted = np.arange(3) == draft.tables[depth].argmax(axis=-1)[..., None]
        rest = np.where(wanted, 0.0, tables[depth])
        rest *= (1.0 - little) / rest.sum(axis=-1, keepdims=True)
        tables[depth] = np.where(wanted, little, rest)
    return draft, TabularModel(tables)


ONE_TOKEN: Pair = (
    TabularModel([[1.0, 0.0, 0.0], np.eye(3)]),
    random_pair(3, 2, np.random.default_rng(6))[1],
)
"""A pair whose draft has only one possible token at each position."""

LEAF: Any = ((), ())
DRAWN = ((), (LEAF, LEAF))
# three levels: certain tokens, each with a drawn sibling; then two drawn tokens or the same again
STAIRS = [
    mixed_shape(((((DRAWN,), (LEAF,)),), (LEAF,))),
    mixed_shape((((((((LEAF,), (LEAF,)),), (DRAWN,))),), (LEAF,))),
]
UNWANTED = [mixed_tree([(1, 1), (0, 2)]), mixed_tree([(1, 1), (1, 1)])]
LITTLE: dict[int, list[tuple[float, ...]]] = {
    2: [(1e-6, 0.1), (1e-8, 0.1), (1e-9, 1e-14), (1e-14, 0.1), (1e-14, 1e-14), (1e-300, 1e-12)],
    3: [(0.1, 1e-14, 0.1), (1e-12, 0.1, 1e-14), (1e-14, 1e-14, 1e-14),
        (1.0 - 1e-13, 1e-9, 1e-300), (1e-9, 1.0 - 1e-13, 1e-6), (1e-300, 1e-20, 5e-324)],
}  # fmt: skip
LARGE = [*product(UNWANTED[:1], LITTLE[2][:-1]), *product(STAIRS[1:], LITTLE[3][:-1])]
HARDLY_WANTED = [
    *product(UNWANTED[1:], LITTLE[2]),
    *product(STAIRS[:1], LITTLE[3]),
    (UNWANTED[0], LITTLE[2][-1]),
    (STAIRS[1], LITTLE[3][-1]),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGE),
]
"""Trees, and the target mass of the certain token at each depth."""


def hard_laws() -> st.SearchStrategy[tuple[FloatArray, FloatArray]]:
    """Return two distributions on the same tokens, with zeros, ties and tiny masses."""
    return st.integers(2, 6).flatmap(
        lambda size: st.tuples(distributions(size), distributions(size))
    )
