"""Draft schemes: every method against the list of all tuples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.errors import InvalidDistributionError, InvalidInputError, SizeLimitError
from tests.examples import examples
from tests.instances import DEGENERATE, LARGER_SCHEMES, SCHEMES, brute_force_optimum
from tests.otlp.drafts.scheme_checks import CLOSE, check_renaming, check_samples, check_scheme


def check_any(problem, random):
    order = list(range(problem.vocab_size))
    random.shuffle(order)
    check_scheme(problem.drafts, np.array(order))
    check_renaming(problem.drafts)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data(), random=st.randoms(use_true_random=False))
@examples(20)
def test_every_answer_agrees_with_the_list_of_tuples(scheme, data, random):
    check_any(data.draw(SCHEMES[scheme]), random)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_every_answer_agrees_with_longer_lists_of_tuples(scheme, data, random):
    check_any(data.draw(LARGER_SCHEMES[scheme]), random)


@pytest.mark.parametrize("name", DEGENERATE)
def test_every_answer_at_the_edges(name):
    drafts = DEGENERATE[name].drafts
    check_scheme(drafts, np.arange(drafts.vocab_size)[::-1].copy())
    check_renaming(drafts)


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


@pytest.mark.parametrize("drafts", [otlp.Greedy([0.25] * 4, 2), otlp.Hub([0.25] * 4)])
def test_top_k_of_renamed_ties_keeps_the_top_tokens(drafts):
    cut = drafts.restrict([3, 2, 1, 0], 4).top_k(2)
    check_scheme(cut, np.array([2, 0, 3, 1]))
    problem = otlp.Problem([0.1, 0.2, 0.3, 0.4], cut)
    optimum = brute_force_optimum(problem)
    for solver in ("auto", "max-flow", "orderings"):
        assert otlp.solve(problem, solver).acceptance == pytest.approx(optimum, abs=1e-6)


def test_drafts_over_different_vocabularies_are_refused():
    with pytest.raises(InvalidInputError, match=r"\[3, 2\] tokens"):
        otlp.Independent([[0.5, 0.3, 0.2], [0.5, 0.5]])
    with pytest.raises(InvalidInputError, match="empty"):
        otlp.Independent([])
    with pytest.raises(InvalidDistributionError, match=r"drafts\[1\]"):
        otlp.Independent([[0.5, 0.5], [0.5, 0.6]])


@pytest.mark.parametrize("make", [otlp.WithoutReplacement, otlp.Greedy])
def test_more_drafts_than_tokens_are_refused(make):
    with pytest.raises(InvalidInputError, match=r"n must be at most 2, .*, got 3"):
        make([0.5, 0.5, 0.0], 3)
    with pytest.raises(InvalidInputError, match="must be an integer"):
        make([0.5, 0.5, 0.0], 0)
    with pytest.raises(InvalidInputError):
        make([0.5, 0.3, 0.2], 3).top_k(2)


def test_a_hub_needs_a_second_token():
    with pytest.raises(InvalidInputError, match="n must be at most 1, "):
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
