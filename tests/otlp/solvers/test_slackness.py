"""Slackness: exact; a slice solves only its own network."""

from typing import Any

import numpy as np
import pytest

import otlp
from otlp.solution import SolveError, Status
from otlp.solvers.engines import ortools
from otlp.solvers.slackness import Slackness
from tests.instances import language_like


def test_a_slice_solves_only_the_network_it_needs(monkeypatch):
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))
    whole = Slackness().solve(problem)
    subset = whole.subset
    assert subset.tolist() == [True, False, False]
    solved = []
    run = ortools.max_flow

    def counting(network):
        solved.append(network.groups)
        return run(network)

    monkeypatch.setattr("otlp.solvers.flow_solver.FLOW_ENGINES", {"ortools": counting})
    plan: Any = Slackness().prepare(problem)
    assert solved == []
    np.testing.assert_array_equal(plan.subset, subset)
    for row in ([0, 1], [1, 2], [2, 2]):
        np.testing.assert_allclose(plan.conditional(row), whole.plan.conditional(row), atol=1e-12)
    assert len(solved) == 1  # the outer network: every tuple up to here leaves H* = {0}
    np.testing.assert_allclose(plan.conditional([0, 0]), whole.plan.conditional([0, 0]), atol=1e-12)
    assert len(solved) == 2


def test_networks_are_smaller_than_that_of_max_flow():
    problem = language_like(60, 3, 30)
    solution = Slackness().solve(problem)
    sets = solution.details["outer_sets"] + solution.details["inner_sets"]
    assert sets < len(problem.drafts.enumerate_sets())
    assert Slackness().work(problem) >= sets


def test_a_time_limit_of_a_prepared_plan_comes_with_the_bound():
    problem = language_like(200, 3, 100)
    prepared: Any = Slackness(time_limit=1e-4).prepare(problem)
    with pytest.raises(SolveError, match="inner system") as caught:
        prepared.conditional(np.flatnonzero(prepared.subset)[:3])
    assert caught.value.solution.status is Status.TIME_LIMIT
    # The proof covers the given vocabulary, not only the k draft tokens.
    np.testing.assert_array_equal(caught.value.solution.subset, prepared.subset)
    assert prepared.subset.shape == (problem.vocab_size,)
    alpha = otlp.optimal_acceptance(problem)
    assert caught.value.solution.upper_bound == pytest.approx(alpha, abs=1e-12)


def test_other_drafts_are_prepared_by_both_systems():
    explicit = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0]))
    assert Slackness().prepare(explicit).conditional([0, 1]).tolist() == [0.5, 0.5]
