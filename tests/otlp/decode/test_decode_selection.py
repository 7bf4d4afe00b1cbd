"""Selections of a path: the transformed prefixes, and the closed form of the path law."""

from collections import Counter
from itertools import combinations_with_replacement
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.decode import Block, TabularModel, iid_paths, random_pair
from otlp.decode.laws.round_laws import round_law
from otlp.decode.verification.greedy_multipath import Consecutive, whole_interval
from otlp.decode.verification.tournament import Draws
from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import powered, root_score
from tests.otlp.decode.tabular_rounds import hard_laws


class Greedy:
    """Selects the highest path in the order of p/q."""

    root = staticmethod(whole_interval)

    @staticmethod
    def below(state, weight, p, q):
        found = Consecutive(state, p, q)
        return found.draft_distribution(), found.child

    @staticmethod
    def pick(states):
        return np.eye(len(states))[max(range(len(states)), key=lambda k: states[k].rank)]


class TwoSlices:
    """Selects the path with the largest score."""

    @staticmethod
    def root(paths):
        return powered(root_score(), 1.0 / paths)

    @staticmethod
    def below(state, weight, p, q):
        draws = Draws(state, 1.0, weight, p, q)
        return draws.masses(), lambda token: draws.child(token).score

    @staticmethod
    def pick(states):
        return best_score(states)


SELECTIONS = [Greedy, TwoSlices]
SIZES = [(2, 3, 3), (3, 2, 3), (4, 1, 4), (3, 3, 2), (4, 3, 2), (4, 2, 3)]
SLOW = [pytest.mark.slow]
SIZES += [
    pytest.param(3, 3, 3, marks=SLOW),
    pytest.param(4, 3, 3, marks=[*SLOW, pytest.mark.long]),
]


@given(hard_laws(), st.integers(1, 5))
def test_intervals_keep_the_mass(laws, paths):
    p, q = laws
    below = Consecutive(whole_interval(paths), p, q)
    law = below.draft_distribution()
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    for x in np.flatnonzero(q):
        assert q[x] * below.ratio(int(x)) == pytest.approx(law[x], abs=1e-14)


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: s.__name__)
@pytest.mark.parametrize(("vocab_size", "length", "paths"), SIZES)
def test_selected_path_follows_its_closed_form(selection, vocab_size, length, paths):
    """Gamma, multiplied along each path, against the selection over all multisets of K paths.

    Block verification with Gamma as its draft, which follows the selection, then keeps the law of
    the target.
    """
    draft, target = random_pair(vocab_size, length + 1, np.random.default_rng(3))
    skewed = TabularModel(draft.tables, "skewed")
    ends, masses = {}, {}

    def descend(prefix, state, weight, mass):
        if len(prefix) == length:
            ends[prefix], masses[prefix] = state, mass
            return
        p, q = target.distribution(prefix), draft.distribution(prefix)
        gamma, child = selection.below(state, weight, p, q)
        skewed.tables[len(prefix)][prefix] = gamma
        for token in range(vocab_size):
            below = min(1.0, weight * p[token] / gamma[token])
            descend((*prefix, token), child(token), below, mass * q[token])

    descend((), selection.root(paths), 1.0, 1.0)
    picked = dict.fromkeys(ends, 0.0)
    for drafted in combinations_with_replacement(ends, paths):
        law = selection.pick([ends[path] for path in drafted])
        orders = factorial(paths)
        for count in Counter(drafted).values():
            orders //= factorial(count)
        chance = orders * np.prod([masses[path] for path in drafted])
        for path, share in zip(drafted, law, strict=True):
            picked[path] += chance * share
    gamma = skewed.joint(length)
    assert np.abs([picked[path] - gamma[path] for path in ends]).max() < 1e-13
    output = round_law(skewed, target, iid_paths(1, length), Block()).tokens
    assert np.abs(output - target.joint(length + 1)).sum() < 1e-10


def test_flat_interval_takes_its_middle():
    # p = q: every threshold accepts all; the middle threshold makes both slices widest.
    p, score = np.array([0.3, 0.7]), powered(root_score(), 1.0 / 3.0)
    draws = Draws(score, 1.0, 1.0, p, p)
    place = np.logaddexp(score.edges[draws.split.cell], draws.split.offset) / 3.0
    assert np.exp(place) == pytest.approx(0.5, abs=1e-9)
    np.testing.assert_allclose(draws.masses(), p, atol=1e-12)
