"""The scores behind martingale multi-path block verification."""

from collections import Counter
from itertools import combinations_with_replacement
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otlp.decode import (
    Block,
    GreedyMultipath,
    MultipathMartingale,
    TabularModel,
    iid_paths,
    random_pair,
)
from otlp.decode.laws.round_laws import round_law
from otlp.decode.verification.multipath_martingale import ScoreLaw

laws = st.lists(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-16, 1e-6, 0.1, 1.0]), min_size=2, max_size=6
)


def normalised(values):
    total = sum(values)
    return np.array(values) / total if total > 1e-3 else np.full(len(values), 1.0 / len(values))


def some_law(rng, paths):
    edges = np.sort(rng.random(rng.integers(2, 6)))
    masses = rng.random(edges.size - 1)
    return ScoreLaw(paths, edges, masses / masses.sum())


def density(law, u):
    cell = np.searchsorted(law.edges, u, side="right") - 1
    inside = (cell >= 0) & (cell < law.masses.size)
    cell = np.clip(cell, 0, law.masses.size - 1)
    return np.where(inside, law.masses[cell] / np.diff(law.edges)[cell], 0.0)


@pytest.mark.parametrize("paths", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_pick_is_the_law_of_the_largest_score(paths, seed):
    rng = np.random.default_rng(seed)
    states = [some_law(rng, paths) for _ in range(paths)]
    states[-1] = states[0]
    found = MultipathMartingale().pick(states)
    # a fine midpoint rule on a grid that holds all edges
    grid = np.unique(np.concatenate([np.linspace(0, 1, 20_001), *(s.edges for s in states)]))
    middle = 0.5 * (grid[1:] + grid[:-1])
    dens = np.stack([density(s, middle) for s in states])
    cumulative = np.stack(
        [np.interp(middle, s.edges, np.append(0.0, np.cumsum(s.masses))) for s in states]
    )
    for k in range(paths):
        others = np.prod(np.delete(cumulative, k, axis=0), axis=0)
        assert found[k] == pytest.approx(np.sum(dens[k] * others * np.diff(grid)), abs=1e-6)
    assert found.sum() == pytest.approx(1.0, abs=1e-13)


@given(laws, laws, st.integers(2, 5), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_children_mix_to_the_parent(p, q, paths, weight, seed):
    size = min(len(p), len(q))
    p, q = normalised(p[:size]), normalised(q[:size])
    rng = np.random.default_rng(seed)
    state = some_law(rng, paths) if seed % 2 else MultipathMartingale().root(paths)
    skew = MultipathMartingale().skew(state, weight, p, q)
    tokens = np.flatnonzero(q)
    children = {x: skew.child(int(x)) for x in tokens}
    edges = np.unique(np.concatenate([state.edges, *(c.edges for c in children.values())]))
    mixed = np.zeros(edges.size)
    for x, child in children.items():
        assert (child.masses >= 0.0).all() and (np.diff(child.edges) > 0.0).all()
        mixed += q[x] * np.interp(edges, child.edges, np.append(0.0, np.cumsum(child.masses)))
    parent = np.interp(edges, state.edges, np.append(0.0, np.cumsum(state.masses)))
    np.testing.assert_allclose(mixed, parent, atol=1e-13)
    law = skew.draft_distribution()
    assert (law >= 0.0).all()
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    for x in tokens:
        assert q[x] * skew.ratio(int(x)) == pytest.approx(law[x], abs=1e-14)


@given(laws, laws, st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_intervals_keep_the_mass(p, q, paths):
    size = min(len(p), len(q))
    p, q = normalised(p[:size]), normalised(q[:size])
    selection = GreedyMultipath()
    skew = selection.skew(selection.root(paths), 1.0, p, q)
    law = skew.draft_distribution()
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    for x in np.flatnonzero(q):
        assert q[x] * skew.ratio(int(x)) == pytest.approx(law[x], abs=1e-14)


@pytest.mark.parametrize(
    "selection", [GreedyMultipath(), MultipathMartingale()], ids=lambda s: s.name
)
@pytest.mark.parametrize("size", [(2, 3, 3), (3, 2, 3), (4, 1, 4), (3, 3, 2), (4, 3, 2), (4, 2, 3)])
def test_selected_path_follows_its_closed_form(selection, size):
    assert_selection(selection, *size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "selection", [GreedyMultipath(), MultipathMartingale()], ids=lambda s: s.name
)
@pytest.mark.parametrize("size", [(3, 3, 3), (4, 3, 3)])
def test_selected_path_follows_its_closed_form_on_larger_models(selection, size):
    assert_selection(selection, *size)


def assert_selection(selection, vocab_size, length, paths):
    """Gamma as multiplied down each path, against the pick over all multisets of K paths.

    Then block verification with Gamma as its draft, which is what follows the pick, keeps the
    target's law.
    """
    draft, target = random_pair(vocab_size, length + 1, np.random.default_rng(3))
    skewed = TabularModel(draft.tables, "skewed")
    ends, masses = {}, {}

    def descend(prefix, state, weight, mass):
        if len(prefix) == length:
            ends[prefix], masses[prefix] = state, mass
            return
        p, q = target.distribution(prefix), draft.distribution(prefix)
        skew = selection.skew(state, weight, p, q)
        skewed.tables[len(prefix)][prefix] = skew.draft_distribution()
        for token in range(vocab_size):
            below = min(1.0, weight * p[token] / (q[token] * skew.ratio(token)))
            descend((*prefix, token), skew.child(token), below, mass * q[token])

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
    # p = q: every threshold accepts all, and the middle one leaves both slices as wide as can be
    p = np.array([0.3, 0.7])
    skew = MultipathMartingale().skew(MultipathMartingale().root(3), 1.0, p, p)
    assert skew.u == pytest.approx(0.5, abs=1e-9)
    assert skew.ratio(0) == pytest.approx(1.0, abs=1e-12)
