"""Canonical decomposition: optimal for optimal plans, and no worse for other plans."""

import numpy as np
import pytest
from hypothesis import given

import otlp
from otlp.certificate import Answer, certify
from otlp.reductions import CanonicalDecomposition
from otlp.timing import Stopwatch
from tests.examples import examples
from tests.instances import (
    DEGENERATE,
    brute_force_optimum,
    check_solution,
    enumerated,
    iid_problems,
    problems,
)


def check_weights(plan):
    """beta(. | tuple) is a law on the tokens of the tuple; p^I is the law of the selected token."""
    problem, law = plan.problem, np.zeros(plan.problem.vocab_size)
    for row, mass in zip(plan.tuples.tokens, plan.tuples.mass, strict=True):
        tokens, weights = plan.selection(row)
        assert set(tokens) == set(row) and weights.min() >= 0.0
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)
        law[tokens] += mass * weights
    np.testing.assert_allclose(law, plan.selection_distribution, rtol=0.0, atol=1e-12)
    return float(np.minimum(problem.target, law).sum())  # the objective of Theorem B.1


def check_optimal(problem, solver):
    plan = CanonicalDecomposition(otlp.solve(problem, solver).plan)
    best = brute_force_optimum(problem)
    assert check_weights(plan) == pytest.approx(best, abs=1e-9)
    solution = certify(problem, "canonical", Answer(plan), Stopwatch())
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
    check_solution(solution)


@given(problem=problems())
@examples(25)
def test_of_an_optimal_plan_it_accepts_alpha(problem):
    for solver in ("max-flow", "linear-program"):
        check_optimal(problem, solver)


@pytest.mark.parametrize("name", DEGENERATE)
def test_of_an_optimal_plan_it_accepts_alpha_at_the_edges(name):
    check_optimal(DEGENERATE[name], "slackness")


@given(problem=iid_problems(max_vocab=4, max_n=3))
@examples(20)
def test_of_any_lossless_plan_it_is_lossless_and_no_worse(problem):
    for solver in ("naive", "k-seq", "recursive-rejection"):
        given_plan = otlp.solve(problem, solver).plan
        plan = CanonicalDecomposition(given_plan)
        before, accepted = enumerated(given_plan)[1].sum(), check_weights(plan)
        assert before - 1e-12 <= accepted <= brute_force_optimum(problem) + 1e-12
        assert np.abs(enumerated(plan)[0] - problem.target).sum() <= 1e-12


def test_where_nothing_is_accepted_the_weights_are_uniform():
    problem = otlp.Problem([0.0, 0.0, 1.0], otlp.IID([0.5, 0.5, 0.0], 3))
    plan = CanonicalDecomposition(otlp.solve(problem, "max-flow").plan)
    for row, expected in (([0, 0, 1], [0.5, 0.5]), ([1, 1, 1], [1.0])):
        np.testing.assert_allclose(plan.selection(row)[1], expected, rtol=0.0, atol=1e-15)


def test_what_is_drawn_follows_the_weights():
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))
    plan = CanonicalDecomposition(otlp.solve(problem, "max-flow").plan)
    rng, many = np.random.default_rng(0), 20_000
    rows = np.tile([0, 2], (many, 1))
    selected = np.bincount(plan.select_many(rows, rng), minlength=3) / many
    expected = np.zeros(3)
    tokens, weights = plan.selection(np.array([0, 2]))
    expected[tokens] = weights
    np.testing.assert_allclose(selected, expected, rtol=0.0, atol=0.02)
    drawn = plan.sample_many(problem.drafts.sample(rng, many), rng)
    np.testing.assert_allclose(np.bincount(drawn) / many, problem.target, rtol=0.0, atol=0.02)
