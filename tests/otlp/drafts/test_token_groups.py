"""Groups of unlikely tokens in drafts without replacement, against plain evaluation."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.drafts.exponential_race import ExponentialRace
from otlp.drafts.token_groups import SERIES, TERMS
from otlp.drafts.without_replacement import NO_GROUPS
from otlp.solvers.rank_plan import RankPlan
from tests.examples import examples

MASSES = st.sampled_from([1e-4, 3e-5, 1e-5, 1e-7, 1e-12, 1e-100, 1e-300, 5e-324])


def grouped(draft, n, groups, rounds, seed):
    """Return drafts, names, ranks and shares; all groupable tokens are in random groups."""
    rng = np.random.default_rng(seed)
    drafts = otlp.WithoutReplacement(np.array(draft) / np.sum(draft), n)
    size = drafts.vocab_size
    names = np.where(
        drafts._race.groupable, size + rng.integers(groups, size=size), np.arange(size)
    )
    present = np.unique(names[drafts.support])
    ranked = np.concatenate([rng.permutation(present) for _ in range(rounds)])
    shares = rng.dirichlet(np.ones(rounds), size=size + groups)
    shares = shares[ranked, np.repeat(np.arange(rounds), present.size)]
    return drafts, names, ranked, shares


def by_levels(drafts, names, ranked, shares, levels):
    """Return the law if each rank of a group is cut in levels, which its tokens visit in turn.

    The tokens of odd levels come in the opposite order: the error falls as 1 / levels^2.
    """
    tokens, parts = [], []
    for name, share in zip(ranked, shares, strict=True):
        members = np.flatnonzero(names == name)
        for level in range(levels if members.size > 1 else 1):
            tokens.append(members[:: 1 - 2 * (level % 2)])
            parts.append(np.full(members.size, share / (levels if members.size > 1 else 1)))
    steps, split = np.concatenate(tokens), np.concatenate(parts)
    chances, _ = drafts._race.chances(drafts.n, steps, split, NO_GROUPS)
    return np.bincount(steps, split * chances, minlength=drafts.vocab_size)


def test_series_of_powers_of_the_odds():
    x = 2.0**-7
    for m in range(1, TERMS + 1):
        series = sum(SERIES[k, m] * x**k for k in range(TERMS + 1))
        assert abs(series - np.expm1(x) ** m) <= 1e-16 * x


@given(
    st.lists(MASSES, min_size=2, max_size=8),
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=5),
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
@examples(25)
def test_law_of_groups_by_enumeration(rare, likely, n, groups, rounds, seed):
    drafts, names, ranked, shares = grouped([*likely, *rare], n, groups, rounds, seed)
    law = drafts._best_ranked(names, ranked, shares)
    problem = otlp.Problem(np.full(law.size, 1.0 / law.size), drafts)
    plan = RankPlan(problem, law, names, ranked, shares)
    sets, wanted = drafts.enumerate_sets(), np.zeros(law.size)
    for row, mass in enumerate(sets.mass):
        members = sets.members[sets.offsets[row] : sets.offsets[row + 1]]
        tokens, chances = plan.selection(members)
        wanted[tokens] += mass * chances
    assert (law >= 0.0).all() and law.sum() == pytest.approx(1.0, abs=1e-12)
    # The error of a token is small relative to the probability that the token is drafted.
    assert (np.abs(law - wanted) <= 1e-12 * drafts.inclusion + 1e-300).all()
    assert plan.realised_selection_distribution() == pytest.approx(law, abs=1e-15)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 20])
@pytest.mark.parametrize("top", [[], [3000.0], [2000.0, 1e5, 10.0]])
def test_law_of_large_groups_by_levels(n, top):
    rates = np.exp(np.random.default_rng(n).standard_normal(4000))
    draft = np.append(top, rates)
    drafts, names, ranked, shares = grouped(draft, n, 40, 2, n)
    assert drafts._race.groupable.sum() > 500
    law = drafts._best_ranked(names, ranked, shares)
    coarse, fine = (by_levels(drafts, names, ranked, shares, levels) for levels in (10, 20))
    # One step of Richardson extrapolation
    assert law == pytest.approx(fine + (fine - coarse) / 3.0, abs=1e-10)
    assert law.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_tokens_of_equal_mass_have_equal_chances(n):
    """All sets have equal mass: the order of a group does not matter, and its law is uniform."""
    size = 40_000
    drafts = otlp.WithoutReplacement(np.full(size, 1.0 / size), n)
    names = np.where(np.arange(size) < size // 4, size, size + 1)
    law = drafts._best_ranked(names, np.array([size, size + 1]), np.ones(2))
    low = comb(size // 4, n) / comb(size, n)
    assert law[0] * (size // 4) == pytest.approx(low, rel=1e-12)
    assert np.ptp(law[: size // 4]) == np.ptp(law[size // 4 :]) == 0.0
    assert drafts.mass_within(names == size) == pytest.approx(low, rel=1e-12)
    assert drafts.mass_touching(names > size) == pytest.approx(1.0 - low, abs=1e-13)


@given(
    st.lists(MASSES, min_size=2, max_size=8),
    st.lists(st.floats(1e-3, 1.0), min_size=3, max_size=5),
    st.integers(3, 4),
    st.integers(0, 2**32 - 1),
)
@examples(40)
def test_masses_of_subsets_by_enumeration(rare, likely, n, seed):
    drafts = otlp.WithoutReplacement(np.array([*likely, *rare]) / np.sum([*likely, *rare]), n)
    inside = np.random.default_rng(seed).random(drafts.vocab_size) < 0.6
    sets = drafts.enumerate_sets()
    among = inside[sets.members].reshape(-1, n)
    within, touching = float(sets.mass @ among.all(axis=1)), float(sets.mass @ among.any(axis=1))
    assert drafts.mass_within(inside) == pytest.approx(within, rel=1e-11, abs=1e-16)
    assert drafts.mass_touching(inside) == pytest.approx(touching, rel=1e-11, abs=1e-16)


def test_heads_and_nodes_of_all_tested_races() -> None:
    """The tests above contain heads, and races of one block and of several blocks of nodes."""
    races = [
        otlp.WithoutReplacement(np.append(top, np.ones(4000)) / (4000.0 + sum(top)), 4)._race
        for top in ([], [1e6])
    ]
    assert all(isinstance(race, ExponentialRace) for race in races)
    assert [race.heads.size for race in races] == [0, 1]
    assert len(races[0].times) == 1 < len(races[1].times)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_too_few_tokens_hold_no_drafts(n):
    drafts = otlp.WithoutReplacement(
        np.append(np.random.default_rng(0).dirichlet(np.ones(50)), 0.0), n
    )
    assert drafts.mass_within(np.append(np.arange(n - 1), 50)) == 0.0
    assert drafts.mass_within(np.arange(n)) > 0.0
