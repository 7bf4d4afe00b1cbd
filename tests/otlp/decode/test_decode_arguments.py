"""Arguments of the wrong kind are named; tests/reliability gives every function every wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otlp.decode import (
    Sampling,
    Speculative,
    iid_paths,
    play_round,
    random_pair,
)
from otlp.decode.cascades import (
    Cascade,
    Chow,
    GreedyCascade,
    GreedyTokenCascade,
    TokenCascade,
    TokenV1,
)
from otlp.decode.laws.round_laws import round_law
from otlp.errors import InvalidInputError

RNG = np.random.default_rng(0)
DRAFT, TARGET = random_pair(3, 3, RNG)
EMPTY = np.empty(0, dtype=np.int64)
ROUND = (DRAFT, TARGET, iid_paths(1, 1), Speculative())


def played(*arguments: Any) -> None:
    DRAFT.start(EMPTY)
    TARGET.start(EMPTY)
    play_round(*arguments)


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
