"""Subset selection for every draft scheme: the minimum dual value over all subsets."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.reductions.subset_selection import best_prefix, subset_selection
from tests.examples import examples
from tests.instances import DEGENERATE, SCHEMES, brute_force_optimum

TARGET = [0.14, 0.68, 0.02, 0.16]
FIRST, SECOND = [0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]


def check(problem):
    alpha, subset = subset_selection(problem)
    closed_form = isinstance(problem.drafts, otlp.IID)
    assert alpha == problem.dual_value(subset)
    assert alpha == pytest.approx(
        brute_force_optimum(problem), abs=1e-12 if closed_form else 2e-9, rel=0.0
    )
    if closed_form:
        assert not subset[~problem.drafts.support].any()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
@examples(30)
def test_least_of_all_subsets(scheme, data):
    check(data.draw(SCHEMES[scheme]))


@pytest.mark.parametrize("name", DEGENERATE)
def test_at_the_edges(name):
    check(DEGENERATE[name])


def test_a_prefix_in_the_average_draft_is_not_enough():
    problem = otlp.Problem(TARGET, otlp.Independent([FIRST, SECOND]))
    alpha, subset = subset_selection(problem)
    assert alpha == pytest.approx(0.9448, abs=1e-15)
    assert np.flatnonzero(subset).tolist() == [2, 3]
    order = np.argsort(np.array(TARGET) / problem.drafts.mean_draft)
    prefixes = [problem.dual_value(order[:size]) for size in range(5)]
    assert min(prefixes) == pytest.approx(0.9612, abs=1e-15)


def test_closed_forms():
    p, q = np.array([0.1, 0.25, 0.4, 0.25]), np.array([0.5, 0.2, 0.2, 0.1])
    rest = np.array([0.0, 0.4, 0.4, 0.2])
    expected = 0.1 + np.minimum(p, rest)[1:].sum()
    for drafts in (otlp.Greedy(q, 2), otlp.Hub(q)):
        assert subset_selection(otlp.Problem(p, drafts))[0] == pytest.approx(expected, abs=1e-15)
    one = otlp.Problem(p, otlp.Independent([q]))
    assert subset_selection(one)[0] == pytest.approx(np.minimum(p, q).sum(), abs=1e-15)


@pytest.mark.parametrize("size", [300, 1000])
def test_independent_drafts_that_are_equal_have_the_subset_of_iid_drafts(size):
    rng = np.random.default_rng(size)
    q, p = rng.dirichlet(np.full(size, 0.3)), rng.dirichlet(np.full(size, 0.3))
    alpha, _ = subset_selection(otlp.Problem(p, otlp.Independent([q] * 3)))
    assert alpha == pytest.approx(
        otlp.Problem(p, otlp.IID(q, 3)).dual_value(best_prefix(p, q, 3)[0]), abs=1e-6
    )


def test_a_subset_without_proof_comes_with_a_warning():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.standard_normal(500)
    drafts = otlp.Independent(
        [otlp.softmax(logits + 0.3 * rng.standard_normal(500)) for _ in range(2)]
    )
    problem = otlp.Problem(otlp.softmax(logits), drafts)
    with pytest.warns(UserWarning, match="max_iterations = 2") as warned:
        alpha, subset = subset_selection(problem, max_iterations=2)
    assert warned[0].filename == __file__
    assert alpha == problem.dual_value(subset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert subset_selection(problem, gap=1e-3)[0] <= alpha + 1e-15


@pytest.mark.parametrize("options", [{"gap": -1.0}, {"gap": np.nan}, {"max_iterations": 0}])
def test_options_out_of_range_are_refused(options):
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.3, 0.7], 2))
    with pytest.raises(otlp.errors.InvalidInputError, match=next(iter(options))):
        subset_selection(problem, **options)


def test_one_draft_is_the_overlap() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(1000), 2)
    alpha, _ = subset_selection(otlp.Problem(p, otlp.IID(q, 1)))
    assert alpha == pytest.approx(np.minimum(p, q).sum(), abs=1e-14)


def test_more_drafts_are_never_worse() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(500, 0.1), 2)
    values = [subset_selection(otlp.Problem(p, otlp.IID(q, n)))[0] for n in range(1, 30)]
    assert (np.diff(values) >= -1e-15).all()
