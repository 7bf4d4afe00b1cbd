"""Orderings: optimal for every draft scheme, and lossless at every stopping point."""

from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.data.synthetic import generate
from otlp.numerics.minimum_norm import minimum_norm
from otlp.solution import Guarantee, Status
from otlp.solvers.orderings import Orderings, OrderingsPlan
from otlp.timing import deadline
from tests.examples import examples
from tests.instances import brute_force_optimum, check_solution, problems


def test_a_deadline_around_it_is_said_as_its_own_would_be() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(50), 2)
    problem = otlp.Problem(p, otlp.WithoutReplacement(q, 3))
    with deadline(1e-9):
        solution = Orderings().solve(problem)
    assert solution.status is Status.TIME_LIMIT and solution.plan is None
    assert solution.message == "stopped after 1e-09 s, before the first ordering"


@given(problems(), st.integers(1, 3))
@examples(25)
def test_lossless_wherever_it_stops(problem, iterations):
    solution = Orderings(gap=0.0, max_iterations=iterations).solve(problem)
    assert solution.guarantee >= Guarantee.LOSSLESS
    assert solution.status in (Status.SOLVED, Status.ITERATION_LIMIT)
    assert solution.upper_bound >= brute_force_optimum(problem) - 1e-12
    check_solution(solution, 1e-11)


def language_like(size, n, seed):
    rng = np.random.default_rng(seed)
    logits = -1.5 * np.log(np.arange(1, size + 1)) + 0.5 * rng.standard_normal(size)
    noisy = [otlp.softmax(logits + rng.standard_normal(size)) for _ in range(n)]
    return otlp.softmax(logits), noisy


@pytest.mark.parametrize("seed", range(3))
def test_larger_problems_are_certified(seed):
    target, drafts = language_like(200, 4, seed)
    for scheme in (
        otlp.Independent(drafts),
        otlp.WithoutReplacement(drafts[0], 3),
        otlp.Greedy(drafts[0], 3),
        otlp.Hub(drafts[0]),
        otlp.Independent(drafts).top_k(20),
    ):
        solution = Orderings().solve(otlp.Problem(target, scheme))
        assert solution.status is Status.SOLVED
        assert solution.guarantee is Guarantee.OPTIMAL
        assert 0.0 <= solution.gap + 1e-12 <= 1e-6 + 1e-12
        assert solution.plan.marginals().acceptance.sum() == pytest.approx(
            solution.acceptance, abs=1e-13
        )


def test_acceptance_without_enumeration_is_a_lower_bound_within_the_gap(monkeypatch):
    target, drafts = language_like(12, 3, 0)
    problem = otlp.Problem(target, otlp.Independent(drafts))
    exact = Orderings(gap=1e-3).solve(problem)
    monkeypatch.setattr("otlp.solvers.orderings.ENUMERATION_LIMIT", 0.0)
    bound = Orderings(gap=1e-3).solve(problem)
    assert exact.marginal_method == "enumerated" and bound.marginal_method == "closed form"
    assert exact.acceptance - 1e-3 <= bound.acceptance <= exact.acceptance + 1e-15
    assert bound.gap <= 1e-3


def test_the_mixture_is_what_it_says():
    target, drafts = language_like(50, 3, 2)
    problem = otlp.Problem(target, otlp.Independent(drafts))
    drafts = problem.drafts
    found = minimum_norm(target, drafts.mean_draft, drafts.priority_marginals, 1e-8)
    assert found.stopped == "gap" and found.gap <= 1e-8
    assert found.weights.min() >= 0.0
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.sort(found.orders, axis=1) == np.arange(50)).all()
    plan = OrderingsPlan(problem, found.weights, found.orders, found.selection_distribution)
    assert plan.realised_selection_distribution() == pytest.approx(
        found.selection_distribution, abs=1e-14
    )


def test_limits_are_a_status():
    target, drafts = language_like(300, 3, 4)
    problem = otlp.Problem(target, otlp.Independent(drafts))
    stopped = Orderings(max_iterations=2).solve(problem)
    assert stopped.status is Status.ITERATION_LIMIT
    assert stopped.guarantee is Guarantee.LOSSLESS
    assert "lossless" in stopped.message
    late = Orderings(time_limit=1e-9).solve(problem)
    assert late.status is Status.TIME_LIMIT
    assert late.guarantee is Guarantee.LOSSLESS


@pytest.mark.parametrize(("size", "n"), [(20_000, 40), (200_000, 16)])
def test_the_time_limit_reaches_into_the_oracle(size, n):
    rng = np.random.default_rng(0)
    target, draft = (otlp.softmax(3.0 * rng.standard_normal(size)) for _ in range(2))
    small = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    problem = otlp.Problem(target, otlp.WithoutReplacement(draft, n))
    Orderings(max_iterations=1).solve(small)  # compiles
    small = otlp.Problem(target, otlp.WithoutReplacement(draft, 3))
    with pytest.raises(TimeoutError), deadline(1e-9):
        small.drafts.priority_marginals(np.arange(size))
    start = perf_counter()
    solution = Orderings(time_limit=0.1).solve(problem)
    assert perf_counter() - start < 5.0
    assert solution.status is Status.TIME_LIMIT
    assert solution.plan is None or solution.guarantee >= Guarantee.LOSSLESS
    assert small.drafts.priority_marginals(np.arange(size)).sum() == pytest.approx(1.0)


def test_ties_among_the_tokens_that_are_satisfied_do_not_hold_up_the_others() -> None:
    """A walk over the whole polytope still has a gap of 1e-6 after 5,000 orderings."""
    capture = generate(rows=1, vocab_size=1000, seed=3)
    target = np.asarray(capture.target_logits[0], dtype=np.float64)
    spread = float((np.asarray(capture.draft_logits[0], dtype=np.float64) - target).std())
    rng = np.random.default_rng(3)
    drafts = [
        otlp.softmax(target + strength * spread * rng.standard_normal(1000))
        for strength in (0.7, 0.9, 1.1, 1.3)
    ]
    problem = otlp.Problem(otlp.softmax(target), otlp.Independent(drafts))
    solution = Orderings(gap=1e-9).solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL
    assert solution.gap <= 1e-9
    assert solution.details["iterations"] < 200
