"""SpecTr's bounds hold the optimum between them; errors add up over steps."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otlp
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.solvers.global_resolution.global_resolution import GlobalResolution
from otlp.studies import bounds
from tests.instances import brute_force_optimum, iid_problems


@given(iid_problems(max_vocab=4, max_n=3))
@settings(max_examples=60)
def test_lemma_3_holds_the_optimum_between_its_bounds(problem: otlp.Problem) -> None:
    optimum = brute_force_optimum(problem)
    masks = product([False, True], repeat=problem.vocab_size)
    upper = min(bounds.upper_bound(problem, np.array(mask)) for mask in masks)
    lower = (1.0 - (1.0 - 1.0 / problem.n) ** problem.n) * upper
    assert lower <= bounds.lower_bound(problem) + 1e-12
    assert bounds.lower_bound(problem) <= optimum + 1e-12
    assert optimum <= upper + 1e-12 <= bounds.upper_bound(problem) + 2e-12


@given(iid_problems(max_n=3), st.data())
@settings(max_examples=60)
def test_every_subset_bounds_the_optimum(problem: otlp.Problem, data: st.DataObject) -> None:
    size = problem.vocab_size
    subset = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assert bounds.upper_bound(problem, subset) >= brute_force_optimum(problem) - 1e-12
    everything = bounds.upper_bound(problem, np.ones(size, dtype=bool))
    assert everything == bounds.upper_bound(problem)


def test_upper_bound_is_the_optimum_for_one_draft() -> None:
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 1))
    assert bounds.upper_bound(problem) == pytest.approx(0.6, abs=1e-15)
    assert bounds.lower_bound(problem) == pytest.approx(0.6, abs=1e-15)


def test_upper_bound_of_a_subset_by_hand() -> None:
    problem = otlp.Problem([0.1, 0.9], otlp.IID([0.5, 0.5], 2))
    # token 0 inside: min(0.1, 0.75); outside, (1,1) and both mixed tuples can take token 1
    assert bounds.upper_bound(problem, [0]) == pytest.approx(0.1 + 3 * 0.25, abs=1e-15)


def test_the_error_over_many_steps_is_at_most_the_sum_of_the_steps() -> None:
    """Two steps of the published plan, enumerated, against Theorem R.1."""
    rng = np.random.default_rng(7)
    solver = GlobalResolution.published(tau=0.05)
    p, q = rng.dirichlet(np.ones(5), 6), rng.dirichlet(np.ones(5), 6)
    laws, errors = [], []
    for target, draft in zip(p, q, strict=True):
        problem = otlp.Problem(target, otlp.IID(draft, 2))
        solution = solver.solve(problem)
        assert solution.plan is not None
        laws.append(solution.plan.marginals().output)
        errors.append(solution.marginal_error)
    # row 0 is the first step, rows 1 to 5 the second, after each first token
    error = sum(
        abs(laws[0][a] * laws[1 + a][b] - p[0][a] * p[1 + a][b])
        for a, b in product(range(5), repeat=2)
    )
    assert 0.0 < error <= bounds.multi_step_error(max(errors), 2)
    assert max(errors) <= 15 * 0.05


def test_all_tokens_bound_the_optimum_under_every_scheme() -> None:
    p, q = np.random.default_rng(5).dirichlet(np.ones(6), 2)
    schemes = (otlp.WithoutReplacement(q, 3), otlp.Greedy(q, 2), otlp.Hub(q))
    for problem in (otlp.Problem(p, scheme) for scheme in schemes):
        assert bounds.upper_bound(problem) >= brute_force_optimum(problem) - 1e-12
        assert bounds.upper_bound(problem, [0, 3]) >= brute_force_optimum(problem) - 1e-12


def test_bad_input() -> None:
    explicit = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0]))
    with pytest.raises(UnsupportedProblemError, match="dual_value"):
        bounds.lower_bound(explicit)
    with pytest.raises(InvalidInputError, match="step_error"):
        bounds.multi_step_error(-1.0, 2)
    with pytest.raises(InvalidInputError, match="length"):
        bounds.multi_step_error(0.1, -1)
    assert bounds.multi_step_error(0.1, 100) == 2.0
