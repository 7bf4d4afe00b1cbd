"""Draft schemes: every answer against the list of all tuples."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otlp
from otlp.auditing.gtest import g_test
from otlp.drafts.token_sets import merge_by_set
from otlp.errors import InvalidDistributionError, InvalidInputError, SizeLimitError
from tests.instances import DEGENERATE, SCHEMES

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
    for inside in product([False, True], repeat=size):
        inside = np.array(inside)
        within, touching = ~(members & ~inside).any(axis=1), (members & inside).any(axis=1)
        np.testing.assert_allclose(drafts.mass_within(inside), mass[within].sum(), **CLOSE)
        np.testing.assert_allclose(drafts.mass_touching(inside), mass[touching].sum(), **CLOSE)
    ranks = np.argsort(order)
    first = tuples.tokens[np.arange(len(mass)), np.argmin(ranks[tuples.tokens], axis=1)]
    wanted = np.bincount(first, weights=mass, minlength=size)
    got = drafts.priority_marginals(order)
    np.testing.assert_allclose(got, wanted, **CLOSE)
    # Positive terms only: tiny masses are right to a relative error.
    np.testing.assert_allclose(got[wanted > 1e-250], wanted[wanted > 1e-250], rtol=1e-11)
    listed, merged = by_set(drafts.enumerate_sets()), by_set(merge_by_set(tuples))
    assert len(listed) <= drafts.set_count()[0]
    for key in listed.keys() | merged.keys():
        np.testing.assert_allclose(listed.get(key, 0.0), merged.get(key, 0.0), **CLOSE)


def check_renaming(drafts):
    tokens = np.flatnonzero(drafts.support)
    renamed = drafts.restrict(tokens, tokens.size + 1)
    assert renamed.vocab_size == tokens.size + 1 and renamed.n == drafts.n
    tuples = renamed.enumerate_tuples()
    np.testing.assert_allclose(
        drafts.probability(tokens[tuples.tokens]), tuples.mass, rtol=1e-12, atol=1e-300
    )
    np.testing.assert_allclose(tuples.mass.sum(), 1.0, **CLOSE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_answer_agrees_with_the_list_of_tuples(scheme):
    @given(SCHEMES[scheme], st.randoms(use_true_random=False))
    @settings(max_examples=40)
    def check(problem, random):
        order = list(range(problem.vocab_size))
        random.shuffle(order)
        check_scheme(problem.drafts, np.array(order))
        check_renaming(problem.drafts)

    check()


@pytest.mark.parametrize("name", DEGENERATE)
def test_every_answer_at_the_edges(name):
    drafts = DEGENERATE[name].drafts
    check_scheme(drafts, np.arange(drafts.vocab_size)[::-1].copy())
    check_renaming(drafts)


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


@pytest.mark.parametrize(
    "drafts",
    [
        otlp.IID([0.5, 0.3, 0.2, 0.0], 3),
        otlp.IID([1e-3, 0.999], 2),
        otlp.Explicit([[0, 1], [1, 0], [2, 2], [0, 0]], [0.1, 0.6, 0.3, 0.0]),
        otlp.Independent([[0.5, 0.3, 0.2, 0.0], [0.1, 0.1, 0.0, 0.8]]),
        otlp.WithoutReplacement([0.6, 0.2, 0.15, 0.05], 3),
        otlp.WithoutReplacement([1.0 - 1e-6, 5e-7, 3e-7, 2e-7], 3),
        otlp.Greedy([0.1, 0.2, 0.3, 0.4], 3),
        otlp.Hub([0.1, 0.6, 0.2, 0.1]),
    ],
    ids=repr,
)
def test_samples_follow_the_law(drafts):
    check_samples(drafts)


def test_spechub_pairs_of_its_example():
    # SpecHub, Figure 5: q = (.5, .3, .2).
    drafts = otlp.Hub([0.5, 0.3, 0.2])
    tuples = drafts.enumerate_tuples()
    pairs = dict(zip(map(tuple, tuples.tokens.tolist()), tuples.mass, strict=True))
    assert pairs == pytest.approx({(1, 0): 0.3, (2, 0): 0.2, (0, 1): 0.3, (0, 2): 0.2})


def test_without_replacement_is_sequential():
    drafts = otlp.WithoutReplacement([0.5, 0.3, 0.2], 3)
    assert float(drafts.probability([1, 0, 2])) == pytest.approx(0.3 * 0.5 / 0.7, rel=1e-15)
    assert float(drafts.probability([1, 1, 2])) == 0.0
    # 1 - q_0 is not computed as a difference.
    tiny = otlp.WithoutReplacement([1.0, 3e-30, 1e-30], 2)
    assert float(tiny.probability([0, 1])) == pytest.approx(0.75, rel=1e-14)


@pytest.mark.parametrize("n", [3, 5, 20])
def test_without_replacement_clocks_of_a_large_vocabulary(n):
    q = np.random.default_rng(n).dirichlet(np.full(2000, 0.2))
    q = np.where(q < 1e-12, 0.0, q)
    drafts = otlp.WithoutReplacement(q / q.sum(), n)
    order = np.random.default_rng(0).permutation(2000)
    assert drafts.priority_marginals(order).sum() == pytest.approx(1.0, abs=1e-12)
    assert drafts.inclusion.sum() == pytest.approx(n, abs=1e-11)
    assert drafts.priority_marginals(order)[order[0]] == pytest.approx(
        drafts.inclusion[order[0]], rel=1e-10
    )


def test_a_group_of_equal_tokens_shares_evenly():
    drafts = otlp.WithoutReplacement(np.full(6, 1.0 / 6.0), 4)
    assert drafts.inclusion == pytest.approx(np.full(6, 4.0 / 6.0), abs=1e-14)
    # The best of 4 among 6 in a given order: hypergeometric.
    expected = [20 / 30, 8 / 30, 2 / 30, 0.0, 0.0, 0.0]
    assert drafts.priority_marginals(np.arange(6)) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    "make",
    [
        lambda q: otlp.WithoutReplacement(q, 2),
        lambda q: otlp.Greedy(q, 2),
        otlp.Hub,
        lambda q: otlp.Independent([q, q]),
    ],
)
def test_top_k_is_the_scheme_of_the_cut_draft(make):
    q = np.array([0.1, 0.4, 0.3, 0.15, 0.05])
    cut = np.array([0.0, 0.4, 0.3, 0.15, 0.0]) / 0.85
    ours, wanted = make(q).top_k(3).enumerate_tuples(), make(cut).enumerate_tuples()
    assert ours.tokens.tolist() == wanted.tokens.tolist()
    np.testing.assert_allclose(ours.mass, wanted.mass, rtol=1e-14)


def test_drafts_over_different_vocabularies_are_refused():
    with pytest.raises(InvalidInputError, match=r"\[3, 2\] tokens"):
        otlp.Independent([[0.5, 0.3, 0.2], [0.5, 0.5]])
    with pytest.raises(InvalidInputError, match="empty"):
        otlp.Independent([])
    with pytest.raises(InvalidDistributionError, match=r"drafts\[1\]"):
        otlp.Independent([[0.5, 0.5], [0.5, 0.6]])


@pytest.mark.parametrize("make", [otlp.WithoutReplacement, otlp.Greedy])
def test_more_drafts_than_tokens_are_refused(make):
    with pytest.raises(InvalidInputError, match="n is 3 and the draft has 2 tokens"):
        make([0.5, 0.5, 0.0], 3)
    with pytest.raises(InvalidInputError, match="whole number"):
        make([0.5, 0.5, 0.0], 0)
    with pytest.raises(InvalidInputError):
        make([0.5, 0.3, 0.2], 3).top_k(2)


def test_a_hub_needs_a_second_token():
    with pytest.raises(InvalidInputError, match="1 tokens"):
        otlp.Hub([0.0, 1.0])


def test_an_order_that_is_no_permutation_is_refused():
    for order in ([0, 1], [0, 1, 1], [0, 1, 3], [-1, 0, 1], [0.0, 1.0, 2.0]):
        with pytest.raises(InvalidInputError, match="permutation"):
            otlp.Independent([[0.5, 0.3, 0.2]]).priority_marginals(np.array(order))


@pytest.mark.parametrize(
    "make",
    [
        lambda q: otlp.IID(q, 4),
        lambda q: otlp.Independent([q] * 4),
        lambda q: otlp.WithoutReplacement(q, 4),
    ],
)
def test_lists_that_do_not_fit_are_refused_before_they_are_made(make):
    drafts = make(np.full(1000, 1e-3))
    for listing in (drafts.enumerate_tuples, drafts.enumerate_sets):
        with pytest.raises(SizeLimitError, match="MiB, more than memory_limit = 2,048 MiB"):
            listing()
    with pytest.raises(SizeLimitError):
        make([0.3, 0.3, 0.2, 0.2]).enumerate_tuples(memory_limit=10)


def test_no_token_is_lost_where_its_share_of_a_place_underflows() -> None:
    drafts = otlp.Greedy([0.25, 0.25, 0.25, 0.25, 5e-324], n=2)
    assert drafts.mean_draft[4] == 0.0 and drafts.support.all()
    plan = otlp.solve(otlp.Problem([0.0, 0.0, 0.0, 0.0, 1.0], drafts), "orderings").plan
    np.testing.assert_allclose(plan.conditional([0, 4]), [0.0, 0.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("kind", [otlp.IID, otlp.WithoutReplacement, otlp.Greedy])
def test_a_class_of_ones_own_stays_one(kind: type[otlp.IID]) -> None:
    class Labelled(kind):  # type: ignore[misc, valid-type]
        def __init__(self, label: str) -> None:
            super().__init__([0.4, 0.1, 0.3, 0.2], 2)
            self.label = label

    drafts = Labelled("own")
    assert drafts.inclusion.size == 4
    for made, expected in (
        (drafts.top_k(3), kind(otlp.distribution.top_k(drafts.draft, 3), 2)),
        (drafts.restrict([3, 2, 1, 0], 5), kind([0.2, 0.3, 0.1, 0.4, 0.0], 2)),
    ):
        assert type(made) is Labelled and made.label == "own"
        assert not made.draft.flags.writeable
        np.testing.assert_allclose(made.inclusion, expected.inclusion, **CLOSE)
        np.testing.assert_allclose(made.mean_draft, expected.mean_draft, **CLOSE)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_an_unlikely_token_keeps_its_digits(n: int) -> None:
    q = np.array([0.5, 0.3, 0.15, 0.04, 0.01, 1e-12])
    drafts = otlp.WithoutReplacement(q / q.sum(), n)
    sets = drafts.enumerate_sets()
    rows = sets.members.reshape(-1, n)
    drawn = sets.mass[(rows == 5).any(axis=1)].sum()
    assert drafts.mass_touching([5]) == pytest.approx(drawn, rel=1e-10)
    assert drafts.inclusion[5] == pytest.approx(drawn, rel=1e-10)
    assert drafts.mass_touching([0, 5]) == pytest.approx(1.0 - drafts.mass_within([1, 2, 3, 4]))
