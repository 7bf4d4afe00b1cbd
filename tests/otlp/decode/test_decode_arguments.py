"""Arguments of undocumented types end in an error of ours, never in one of Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otlp.decode import (
    RandomChooser,
    Sampling,
    Speculative,
    TabularModel,
    check_pair,
    check_round,
    find_verification,
    iid_paths,
    multipath_optimum,
    play_round,
    random_pair,
)
from otlp.decode.cascades import (
    RULES,
    Cascade,
    Chow,
    GreedyCascade,
    GreedyTokenCascade,
    Lossy,
    TokenCascade,
    TokenV1,
    sequential_cascade,
)
from otlp.decode.laws.prefix_laws import prefix_law
from otlp.decode.laws.round_laws import round_law
from otlp.errors import InvalidInputError, OTLPError

RNG = np.random.default_rng(0)
DRAFT, TARGET = random_pair(3, 3, RNG)
EMPTY = np.empty(0, dtype=np.int64)
ROUND = (DRAFT, TARGET, iid_paths(1, 1), Speculative())


def played(*arguments: Any) -> None:
    DRAFT.start(EMPTY)
    TARGET.start(EMPTY)
    play_round(*arguments)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Sampling": (Sampling, (0.7, 2, 0.9)),
    "Sampling.distributions": (Sampling(0.7, 2, 0.9).distributions, (np.ones((1, 3)),)),
    "greedy": (Sampling(0.0).distributions, (np.ones((1, 3)),)),
    "play_round": (played, (*ROUND, RNG)),
    "check_round": (check_round, ROUND),
    "check_pair": (check_pair, (DRAFT, TARGET)),
    "round_law": (round_law, ROUND),
    "prefix_law": (prefix_law, ROUND),
    "iid_paths": (iid_paths, (2, 2)),
    "TabularModel": (TabularModel, (DRAFT.tables,)),
    "distribution": (TARGET.distribution, ([1],)),
    "joint": (TARGET.joint, (2,)),
    "start": (TARGET.start, ([1],)),
    "random_pair": (random_pair, (3, 2, RNG)),
    "multipath_optimum": (multipath_optimum, (DRAFT, TARGET, 1, 1, 5)),
    "RandomChooser": (RandomChooser, (RNG,)),
    "find_verification": (find_verification, ("block",)),
    "Lossy": (Lossy, (0.1, 1.0)),
    "sequential_cascade": (
        sequential_cascade,
        (DRAFT, TARGET, Chow(0.1), [], 2, RandomChooser(RNG)),
    ),
    **{name: (rule, (0.1,)) for name, rule in RULES.items()},
    **{kind.__name__: (kind, (Chow(0.1),)) for kind in (Cascade, GreedyCascade)},
    **{kind.__name__: (kind, (TokenV1(0.1),)) for kind in (TokenCascade, GreedyTokenCascade)},
}
FOREIGN: list[Any] = [
    None,
    "a",
    b"x",
    3,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    True,
    1 + 2j,
    object(),
    {},
    (),
    [1, "b"],
    [[1], [2, 3]],
    np.zeros(3),
    np.array(["a"]),
    np.zeros((2, 2), dtype=complex),
]


@pytest.mark.parametrize("name", CALLS)
def test_foreign_arguments(name: str) -> None:
    call, arguments = CALLS[name]
    call(*arguments)
    refused = 0
    for place in range(len(arguments)):
        for foreign in FOREIGN:
            try:
                call(*arguments[:place], foreign, *arguments[place + 1 :])
            except OTLPError:
                refused += 1
    assert refused >= 10 * len(arguments) or name in ("TabularModel", "play_round")


def test_a_seed_is_no_generator() -> None:
    with pytest.raises(InvalidInputError, match="random generator is 7: it must be a Generator"):
        played(*ROUND, 7)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Cascade, TokenV1(0.1)),
        (GreedyCascade, TokenV1(0.1)),
        (TokenCascade, Chow(0.1)),
        (GreedyTokenCascade, Chow(0.1)),
    ],
)
def test_rules_of_the_other_kind_are_refused(kind: Any, rule: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"alpha=0\.1\): it must be a rule that defers by"):
        kind(rule)


@pytest.mark.parametrize("temperature", [float("inf"), float("nan"), -1e-300, "1", None])
def test_temperatures_that_are_none(temperature: Any) -> None:
    with pytest.raises(InvalidInputError, match="temperature is"):
        Sampling(temperature)


@pytest.mark.parametrize("temperature", [1e-40, 1e-300, 1e300])
def test_extreme_temperatures(temperature: float) -> None:
    logits = np.array([[1.0, 2.0, -np.inf, 2.0]], dtype=np.float32)
    found = Sampling(temperature).distributions(logits)[0]
    wanted = [0, 0.5, 0, 0.5] if temperature < 1.0 else [1 / 3, 1 / 3, 0, 1 / 3]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_tables_that_end_too_early_are_named() -> None:
    with pytest.raises(InvalidInputError, match="up to 5 tokens and the tables cover 3"):
        round_law(DRAFT, TARGET, iid_paths(1, 4), Speculative())
