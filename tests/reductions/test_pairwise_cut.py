"""Two independent drafts: the minimum cut among tokens is subset selection."""

import numpy as np
import pytest
from hypothesis import given, settings

import otlp
from otlp.errors import UnsupportedProblemError
from otlp.reductions import PairwiseCut, PrimalDual
from otlp.reductions.subset_selection import subset_selection
from otlp.solvers.engines import ortools
from tests.instances import brute_force_optimum, iid_problems, independent_problems


def cut(problem):
    network, inverse = PairwiseCut().apply(problem)
    flows = ortools.max_flow(network)
    subset = PairwiseCut().invert(PrimalDual(flows), inverse).dual
    value = flows[: problem.vocab_size].sum() - network.capacities[-problem.vocab_size :].sum()
    return 1.0 + value, subset


@given(independent_problems().filter(lambda problem: problem.n == 2))
@settings(max_examples=150)
def test_the_cut_is_the_optimum_for_two_different_drafts(problem):
    alpha, subset = cut(problem)
    best = brute_force_optimum(problem)
    assert alpha == pytest.approx(best, abs=1e-12)
    assert problem.dual_value(subset) == pytest.approx(best, abs=1e-12)


@given(iid_problems(min_n=2, max_n=2))
@settings(max_examples=50)
def test_the_cut_is_the_optimum_for_two_equal_drafts(problem):
    assert problem.dual_value(cut(problem)[1]) == pytest.approx(
        subset_selection(problem)[0], abs=1e-12
    )


def test_the_example_that_no_prefix_solves():
    drafts = otlp.Independent([[0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]])
    alpha, subset = cut(otlp.Problem([0.14, 0.68, 0.02, 0.16], drafts))
    assert alpha == pytest.approx(0.9448, abs=1e-12)
    assert subset.tolist() == [False, False, True, True]


def test_it_agrees_with_submodular_minimisation_on_larger_vocabularies():
    rng = np.random.default_rng(0)
    p, first, second = rng.dirichlet(np.full(200, 0.3), size=3)
    problem = otlp.Problem(p, otlp.Independent([first, second]))
    assert problem.dual_value(cut(problem)[1]) == pytest.approx(
        subset_selection(problem)[0], abs=1e-9
    )


def test_what_is_not_quadratic_or_too_large_is_refused_with_the_way_out():
    three = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 3))
    with pytest.raises(UnsupportedProblemError, match="subset_selection"):
        PairwiseCut().apply(three)
    two = otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 2))
    assert "memory_limit" in PairwiseCut(memory_limit=100).accepts(two).reason
