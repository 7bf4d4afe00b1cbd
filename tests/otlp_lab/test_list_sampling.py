"""List sampling: its races, and text that does not depend on the draft; delayed paths."""

import numpy as np
import pytest

from otlp.auditing.gtest import g_test
from otlp.decode import (
    TabularModel,
    delayed_paths,
    iid_paths,
    random_pair,
    without_replacement,
)
from otlp.decode.laws.round_laws import round_law
from otlp.errors import InvalidInputError, SizeLimitError, UnsupportedProblemError
from otlp_lab.list_sampling import ListSampling, race_conditional
from otlp_lab.one_stream import list_decoding, race


def test_delayed_paths_are_a_trunk_and_paths() -> None:
    assert delayed_paths(0, 2, 3) == iid_paths(2, 3)
    assert delayed_paths(2, 2, 1).shape == (-1, 0, 1, 2, 2)
    with pytest.raises(InvalidInputError, match="trunk"):
        delayed_paths(-1, 2, 3)


@pytest.mark.parametrize(("size", "runs"), [(5, 20), (60_000, 1)])
def test_one_list_agrees_as_the_formula_of_gumbel_coupling_says(size: int, runs: int) -> None:
    """Also for a large vocabulary, without a table of pairs, which would need 27 GiB."""
    rng = np.random.default_rng(0)
    for _ in range(runs):
        p, q = rng.dirichlet(np.full(size, 0.5), 2)
        for x in rng.permutation(size)[:5]:
            found = q[x] * race_conditional(p, q, np.array([x]))[x]
            formula = 1.0 / np.maximum(q / q[x], p / p[x]).sum()
            assert found == pytest.approx(formula, rel=1e-9)


def test_a_draft_that_hardly_knows_a_token_keeps_the_others_law() -> None:
    """If p/q overflows, the result is as for q = 0."""
    p = np.array([0.5, 0.3, 0.2])
    found = race_conditional(p, np.array([1e-310, 0.4, 0.6]), np.array([1]))
    without = race_conditional(p, np.array([0.0, 0.4, 0.6]), np.array([1]))
    np.testing.assert_allclose(found, without, rtol=1e-12)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_law_of_a_race_is_that_of_races() -> None:
    """A G-test over tuples of drafts and the target; false alarm rate 1e-3 with this seed."""
    rng = np.random.default_rng(1)
    p, q = np.array([0.6, 0.1, 0.3]), np.array([0.2, 0.5, 0.3])
    counts = np.zeros((3, 3, 3))
    draws = 10_000
    for times in rng.standard_exponential((draws, 2, 3)):
        counts[race(q, times[0]), race(q, times[1]), race(p, times.min(axis=0))] += 1
    expected = np.array(
        [[q[x] * q[y] * race_conditional(p, q, np.array([x, y])) for y in range(3)]
         for x in range(3)]
    )  # fmt: skip
    assert not np.any(counts[expected <= 1e-15])
    assert not g_test(counts.ravel(), expected.ravel(), 1e-3).rejected


@pytest.mark.parametrize("paths", [1, 3])
def test_the_text_of_list_decoding_does_not_depend_on_the_draft(paths) -> None:
    draft, target = random_pair(3, 9, np.random.default_rng(0))
    other, _ = random_pair(3, 9, np.random.default_rng(1))
    same = TabularModel(target.tables)
    calls = np.zeros(3)
    for seed in range(60):
        runs = [
            list_decoding(model, target, (), paths=paths, length=length, tokens=8, seed=seed)
            for model, length in ((draft, 3), (other, 1), (same, 3))
        ]
        assert len({tuple(run.tokens.tolist()) for run in runs}) == 1
        calls += [run.target_calls for run in runs]
    # A draft equal to the target agrees more often than an unrelated draft.
    assert calls[2] < calls[1]


def test_the_text_of_list_decoding_follows_the_target() -> None:
    """A G-test over whole texts; false alarm rate 1e-3 with these seeds."""
    draft, target = random_pair(3, 3, np.random.default_rng(2))
    counts = np.zeros((3, 3))
    for seed in range(1500):
        run = list_decoding(draft, target, (), paths=2, length=1, tokens=2, seed=seed)
        counts[tuple(run.tokens)] += 1
    assert not g_test(counts.ravel(), target.joint(2).ravel(), 1e-3).rejected


def test_what_list_sampling_refuses() -> None:
    draft, target = random_pair(3, 3, np.random.default_rng(0))
    with pytest.raises(UnsupportedProblemError, match="without-replacement"):
        round_law(draft, target, without_replacement([2, 1]), ListSampling())
    wide = np.full(1000, 1e-3)
    with pytest.raises(SizeLimitError, match="list_decoding"):
        race_conditional(wide, wide, np.array([0, 1, 2]))
    with pytest.raises(InvalidInputError, match="seed"):
        list_decoding(draft, target, (), paths=1, length=1, tokens=1, seed=-1)
