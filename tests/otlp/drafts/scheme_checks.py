"""Checks of draft schemes against the list of their tuples."""

from itertools import product

import numpy as np

from otlp.auditing.gtest import g_test
from otlp.drafts.token_sets import merge_by_set

CLOSE = {"rtol": 0.0, "atol": 1e-13}


def membership(drafts):
    tuples = drafts.enumerate_tuples()
    members = np.zeros((len(tuples.mass), drafts.vocab_size), dtype=bool)
    np.put_along_axis(members, tuples.tokens, True, axis=1)
    return tuples, members


def by_set(sets):
    ends = sets.offsets
    return {
        tuple(sets.members[a:b].tolist()): mass
        for a, b, mass in zip(ends[:-1], ends[1:], sets.mass, strict=True)
    }


def check_scheme(drafts, order):
    tuples, members = membership(drafts)
    size, mass = drafts.vocab_size, tuples.mass
    assert len(np.unique(tuples.tokens, axis=0)) == len(mass) <= drafts.tuple_count()
    assert mass.min() > 0.0
    np.testing.assert_allclose(mass.sum(), 1.0, **CLOSE)
    np.testing.assert_allclose(drafts.probability(tuples.tokens), mass, rtol=1e-14)
    every = np.array(list(product(range(size), repeat=drafts.n)))
    np.testing.assert_allclose(drafts.probability(every).sum(), 1.0, **CLOSE)
    np.testing.assert_allclose(drafts.inclusion, mass @ members, **CLOSE)
    places = np.bincount(
        tuples.tokens.ravel(), weights=np.repeat(mass / drafts.n, drafts.n), minlength=size
    )
    np.testing.assert_allclose(drafts.mean_draft, places, **CLOSE)
    assert not (drafts.support < (places > 0.0)).any()
    subsets = np.array(list(product([False, True], repeat=size)))
    within = [mass[~(members & ~inside).any(axis=1)].sum() for inside in subsets]
    touching = [mass[(members & inside).any(axis=1)].sum() for inside in subsets]
    np.testing.assert_allclose([*map(drafts.mass_within, subsets)], within, **CLOSE)
    np.testing.assert_allclose([*map(drafts.mass_touching, subsets)], touching, **CLOSE)
    ranks = np.argsort(order)
    first = tuples.tokens[np.arange(len(mass)), np.argmin(ranks[tuples.tokens], axis=1)]
    wanted = np.bincount(first, weights=mass, minlength=size)
    got = drafts.priority_marginals(order)
    np.testing.assert_allclose(got, wanted, **CLOSE)
    # Only positive terms: tiny masses have a small relative error.
    np.testing.assert_allclose(got[wanted > 1e-250], wanted[wanted > 1e-250], rtol=1e-11)
    listed, merged = by_set(drafts.enumerate_sets()), by_set(merge_by_set(tuples))
    assert len(listed) <= drafts.set_count()[0]
    keys = listed.keys() | merged.keys()
    both = [[sets.get(key, 0.0) for key in keys] for sets in (listed, merged)]
    np.testing.assert_allclose(*both, **CLOSE)


def check_renaming(drafts):
    tokens = np.flatnonzero(drafts.support)
    renamed = drafts.restrict(tokens, tokens.size + 1)
    assert renamed.vocab_size == tokens.size + 1 and renamed.n == drafts.n
    tuples = renamed.enumerate_tuples()
    np.testing.assert_allclose(
        drafts.probability(tokens[tuples.tokens]), tuples.mass, rtol=1e-12, atol=1e-300
    )
    np.testing.assert_allclose(tuples.mass.sum(), 1.0, **CLOSE)


def check_samples(drafts, size=50_000):
    """G-test with a false-alarm rate of 1e-6 at a fixed seed."""
    tuples = drafts.enumerate_tuples()
    drawn = drafts.sample(np.random.default_rng(7), size)
    assert drawn.shape == (size, drafts.n)
    places = {tuple(row): j for j, row in enumerate(tuples.tokens.tolist())}
    counts = np.bincount([places[tuple(row)] for row in drawn.tolist()], minlength=len(places))
    assert not g_test(counts, tuples.mass, 1e-6).rejected
    one = drafts.sample(np.random.default_rng(1))
    assert one.shape == (drafts.n,) and drafts.probability(one) > 0.0
