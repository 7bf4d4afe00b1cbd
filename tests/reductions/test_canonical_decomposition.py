"""Theorem 4.1 both ways, and the beta-problem as Theorem B.1 states it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otlp
from otlp.reductions import MergeTuples, NetworkReduction, Relaxation
from otlp.reductions.canonical_decomposition import (
    accepted_mass,
    best_weights,
    selected_mass,
    solution_from_weights,
    weights_from_solution,
)
from otlp.solvers.engines import FLOW_ENGINES
from tests.instances import brute_force_optimum, problems

TOLERANCE = 1e-9
reductions = st.sampled_from([MergeTuples(), Relaxation()])


def relaxed_solution(relaxed):
    network, _ = NetworkReduction().apply(relaxed)
    return FLOW_ENGINES["ortools"](network)[network.middle]


def check_weights(relaxed, weights):
    groups = relaxed.groups
    assert (weights >= 0.0).all()
    sums = np.bincount(groups.rows, weights, minlength=len(groups))
    np.testing.assert_allclose(sums, 1.0, rtol=0.0, atol=TOLERANCE)


def check_feasible(relaxed, solution):
    """The constraints of Eq. 2."""
    groups, size = relaxed.groups, relaxed.target.size
    assert (solution >= 0.0).all()
    tokens = np.bincount(groups.members, solution, minlength=size)
    sets = np.bincount(groups.rows, solution, minlength=len(groups))
    assert (tokens <= relaxed.target + 1e-15).all()
    assert (sets <= groups.mass * (1.0 + 1e-12) + 1e-300).all()


@given(problems(), reductions)
@settings(max_examples=80)
def test_beta_from_s_reaches_the_optimum(problem, reduction):
    relaxed, _ = reduction.apply(problem)
    weights = weights_from_solution(relaxed, relaxed_solution(relaxed))
    check_weights(relaxed, weights)
    optimum = brute_force_optimum(problem)
    assert accepted_mass(relaxed, weights) == pytest.approx(optimum, abs=TOLERANCE)


@given(problems(), reductions, st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_s_from_any_beta_is_feasible_and_of_equal_value(problem, reduction, seed):
    relaxed, _ = reduction.apply(problem)
    groups = relaxed.groups
    weights = np.random.default_rng(seed).exponential(size=groups.members.size)
    weights /= np.bincount(groups.rows, weights)[groups.rows]
    solution = solution_from_weights(relaxed, weights)
    check_feasible(relaxed, solution)
    assert solution.sum() == pytest.approx(accepted_mass(relaxed, weights), abs=TOLERANCE)
    assert selected_mass(relaxed, weights).sum() == pytest.approx(1.0, abs=TOLERANCE)
    # and back: no worse
    again = weights_from_solution(relaxed, solution)
    assert accepted_mass(relaxed, again) >= solution.sum() - TOLERANCE


def test_degenerate_groups_get_uniform_weights():
    problem = otlp.Problem([0.0, 0.0, 1.0], otlp.IID([0.5, 0.5, 0.0], 2))
    relaxed, _ = MergeTuples().apply(problem)
    weights = weights_from_solution(relaxed, np.zeros(relaxed.groups.members.size))
    np.testing.assert_array_equal(weights, [1.0, 1.0, 0.5, 0.5])


@pytest.mark.parametrize("seed", range(6))
def test_the_beta_problem_has_the_same_optimum(seed):
    pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    size, n = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    drafts = otlp.IID(rng.dirichlet(np.full(size, 0.5)), n)
    problem = otlp.Problem(rng.dirichlet(np.full(size, 0.5)), drafts)
    optimum = brute_force_optimum(problem)
    for reduction in (MergeTuples(), Relaxation()):
        relaxed, _ = reduction.apply(problem)
        weights = best_weights(relaxed)
        check_weights(relaxed, weights)
        assert accepted_mass(relaxed, weights) == pytest.approx(optimum, abs=1e-6)
        check_feasible(relaxed, solution_from_weights(relaxed, weights))
