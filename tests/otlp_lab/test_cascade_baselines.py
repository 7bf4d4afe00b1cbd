"""Cascades one call at a time, and BiLD: laws enumerated from the code, calls counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from otlp.decode import TabularModel, enumerate_choices, random_pair
from otlp.decode.cascades import BigLittle, BiLD, Cascade, Chow, ChowLog, Diff, GreedyCascade, Opt
from otlp.decode.laws.round_laws import transformed_model
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp_lab.cascade_baselines import (
    CascadeRun,
    Choose,
    big_little_decoding,
    sequence_cascade,
    sequential_cascade,
)

Pair = tuple[TabularModel, TabularModel]


def enumerated(
    run: Callable[[Choose], CascadeRun], shape: tuple[int, ...]
) -> tuple[FloatArray, list[tuple[CascadeRun, float]]]:
    """Return the law of the output of a cascade, and all runs with their probabilities."""
    law, runs = np.zeros(shape), []
    for found, chance in enumerate_choices(lambda chooser: run(chooser.choose)):
        law[tuple(found.tokens)] += chance
        runs.append((found, chance))
    return law, runs


@pytest.mark.parametrize("rule", [Chow(0.4), ChowLog(0.8), Diff(0.1), Opt(0.2), BiLD(1.2)])
def test_a_sequential_cascade_has_the_law_of_the_speculative_one(rule) -> None:
    pair = random_pair(3, 3, np.random.default_rng(2))
    run = partial(sequential_cascade, *pair, rule, (), 3)
    law, runs = enumerated(run, (3, 3, 3))
    np.testing.assert_allclose(law, transformed_model(*pair, Cascade(rule)).joint(3), atol=1e-14)
    for found, _ in runs:
        assert found.draft_calls == 3
        assert found.target_calls == (3 if rule.needs_target else found.deferrals)
    deferrals = {found.deferrals for found, _ in runs}
    assert len(deferrals) > 1  # otherwise the rule was not tested


@pytest.mark.parametrize("alpha", [0.0, 0.7, 0.9, 1.0])
def test_a_sequence_cascade_has_the_law_of_equation_1(alpha: float) -> None:
    draft, target = random_pair(3, 3, np.random.default_rng(3))
    law, runs = enumerated(partial(sequence_cascade, draft, target, alpha, (), 3), (3, 3, 3))
    q, p = draft.joint(3), target.joint(3)
    kept = q >= 1.0 - alpha
    np.testing.assert_allclose(law, q * kept + p * q[~kept].sum(), atol=1e-14)
    assert sum(c for found, c in runs if found.target_calls == 3) == pytest.approx(q[~kept].sum())
    assert {found.deferrals for found, _ in runs} <= {0, 3}


def published(
    pair: Pair, fallback: float, alpha: float, most: int, tokens: int
) -> Callable[[tuple[int, ...]], Iterator[tuple[tuple[int, ...], float]]]:
    """The law of BiLD as described in words: draft windows, cut where D > alpha."""
    draft, target = pair

    def apart(prefix: tuple[int, ...]) -> bool:
        return bool(-draft.distribution(prefix) @ np.log(target.distribution(prefix)) > alpha)

    def texts(
        written: tuple[int, ...], window: tuple[int, ...] = ()
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        here = written + window
        if len(here) == tokens:
            yield here, 1.0
            return
        q = draft.distribution(here)
        if len(window) < most and q.max() >= 1.0 - fallback:
            for token, chance in enumerate(q):
                for text, rest in texts(written, (*window, token)):
                    yield text, chance * rest
            return
        cut = [at for at in range(len(window)) if apart(written + window[:at])]
        kept = written + window[: cut[0] if cut else len(window)]
        for token, chance in enumerate(target.distribution(kept)):
            for text, rest in texts((*kept, token)):
                yield text, chance * rest

    return texts


@pytest.mark.parametrize("most", [1, 2, 10])
@pytest.mark.parametrize(("fallback", "alpha"), [(0.4, 1.3), (0.6, 0.9), (1.0, 1.1), (0.0, 1.0)])
def test_big_little_decoding_is_what_was_published(fallback, alpha, most) -> None:
    pair = random_pair(2, 5, np.random.default_rng(4))
    rule = BigLittle(BiLD(alpha), fallback)
    run = partial(big_little_decoding, *pair, rule, most, (), 5)
    law, runs = enumerated(run, (2,) * 5)
    wanted = np.zeros_like(law)
    for text, chance in published(pair, fallback, alpha, most, 5)(()):
        wanted[text] += chance
    np.testing.assert_allclose(law, wanted, atol=1e-14)
    assert all(found.target_calls == found.deferrals <= 5 for found, _ in runs)


def test_limits_of_big_little_decoding() -> None:
    """Always unsure: the target; never cut: the cascade of Chow; neither: the draft."""
    pair = random_pair(3, 4, np.random.default_rng(5))

    def law(fallback: float, alpha: float) -> FloatArray:
        rule = BigLittle(BiLD(alpha), fallback)
        return enumerated(partial(big_little_decoding, *pair, rule, 9, (), 4), (3,) * 4)[0]

    chow = transformed_model(*pair, Cascade(Chow(0.4)))
    np.testing.assert_allclose(law(0.0, 1.0), pair[1].joint(4), atol=1e-14)
    np.testing.assert_allclose(law(0.4, 99.0), chow.joint(4), atol=1e-14)
    np.testing.assert_allclose(law(1.0, 0.0), pair[0].joint(4), atol=1e-14)  # nothing is verified


def test_greedy_decoding_takes_the_likeliest_tokens() -> None:
    for seed in range(10):
        pair = random_pair(3, 4, np.random.default_rng(seed))
        aimed = transformed_model(*pair, GreedyCascade(Opt(0.2)))
        found = sequential_cascade(*pair, Opt(0.2).greedy(), (), 4, np.argmax)
        assert aimed.joint(4)[tuple(found.tokens)] == 1.0
        rule = BigLittle(BiLD(9.0).greedy(), 0.5)
        assert big_little_decoding(*pair, rule, 5, (), 4, np.argmax).tokens.size == 4


def test_what_is_no_cascade_is_refused() -> None:
    rng = np.random.default_rng(0)
    pair, other = random_pair(3, 2, rng), random_pair(4, 2, rng)[1]
    little = BigLittle(BiLD(1.0), 0.5)
    runs = [
        partial(sequential_cascade, rule=Chow(0.1)),
        partial(sequence_cascade, alpha=0.1),
        partial(big_little_decoding, rule=little, most=2),
    ]
    good = {"context": (), "tokens": 2, "choose": np.argmax}
    for run in runs:
        with pytest.raises(InvalidInputError, match=r"3 tokens .* has 4: both must have the"):
            run(draft=pair[0], target=other, **good)
        for bad, why in [({"tokens": -1}, "tokens must be .*, got -1"),
                         ({"choose": 7}, "choose must be .*; got 7"),
                         ({"context": (3,)}, "context")]:  # fmt: skip
            with pytest.raises(InvalidInputError, match=why):
                run(draft=pair[0], target=pair[1], **(good | bad))
    for alpha in (-0.1, 1.1, np.nan):
        with pytest.raises(InvalidInputError, match="the threshold alpha"):
            sequence_cascade(*pair, alpha, **good)
        with pytest.raises(InvalidInputError, match="the fallback threshold"):
            BigLittle(BiLD(1.0), alpha)
    with pytest.raises(InvalidInputError, match="most"):
        big_little_decoding(*pair, little, 0, **good)
    with pytest.raises(InvalidInputError, match="rule must be a BigLittle, got"):
        big_little_decoding(*pair, Chow(0.1), 2, **good)
