"""Global resolution: within its guarantee on success; otherwise a status and no plan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.drafts.by_name import make_scheme
from otlp.drafts.token_sets import list_sets
from otlp.errors import UnknownSolverError, UnsupportedProblemError
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee, SolveError, Status
from otlp.solvers.by_name import make_solver
from otlp.solvers.global_resolution.convex_solver import solve_convex, starting_point
from otlp.solvers.global_resolution.global_resolution import PAPER_LIMITS, GlobalResolution
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp
from otlp.solvers.max_flow import MaxFlow
from tests.examples import examples
from tests.instances import (
    IID_CASES,
    brute_force_optimum,
    check_solution,
    enumerated,
    iid_problems,
    language_like,
)

ROUNDING = 1e-11
taus = st.sampled_from([1e-2, 1e-3, 1e-4])


def check_published(solution, tau):
    """Check Lemma 6.6, with the law of the output enumerated over tuples."""
    problem = solution.plan.problem
    output, accepted = enumerated(solution.plan)
    error = np.abs(output - problem.target).sum()
    assert error == pytest.approx(solution.marginal_error, abs=1e-12)
    assert error <= solution.details["marginal_bound"] + ROUNDING
    assert solution.details["marginal_bound"] <= 15.0 * tau + ROUNDING
    assert accepted.sum() == pytest.approx(solution.acceptance, abs=1e-12)


def check_acceptance(solution, optimum, tau):
    bound = solution.details["acceptance_bound"]
    assert abs(optimum - solution.acceptance) <= bound + ROUNDING
    assert bound <= 10.0 * tau + ROUNDING


def check_both_plans(problem, tau):
    """Check that the lossless plan is exact, and Lemma 6.6 for a converged published plan."""
    optimum = brute_force_optimum(problem)
    lossless = GlobalResolution(tau).solve(problem)
    assert lossless.status is Status.SOLVED
    assert lossless.guarantee is Guarantee.LOSSLESS
    check_solution(lossless)
    check_acceptance(lossless, optimum, tau)
    published = GlobalResolution.published(tau).solve(problem)
    if published.plan is None:
        assert published.status is Status.ITERATION_LIMIT
        assert published.guarantee is Guarantee.NONE
    else:
        assert published.guarantee is Guarantee.APPROXIMATE
        check_published(published, tau)
        check_acceptance(published, optimum, tau)


@given(iid_problems(), taus)
@examples(20)
def test_both_plans_are_within_ten_tau(problem, tau):
    check_both_plans(problem, tau)


plans = st.sampled_from(["lossless", "published"])


@given(iid_problems(), taus, plans, st.integers(1, 3), st.integers(1, 4))
@examples(50)
def test_never_a_wrong_plan_under_tight_limits(problem, tau, plan, limit, iterations):
    """With tight limits the solver stops with a status or keeps the guarantee."""
    tight = {"max_iterations": iterations, "newton_steps": 0}
    solver = GlobalResolution(tau, plan, {1: limit}, **tight)
    solution = solver.solve(problem)
    if solution.plan is None:
        assert solution.status in (Status.TRUNCATION_LIMIT, Status.ITERATION_LIMIT)
        assert solution.guarantee is Guarantee.NONE
        assert "system:" in solution.message
    else:
        check_acceptance(solution, brute_force_optimum(problem), tau)
        if plan == "published":
            check_published(solution, tau)
        else:
            assert solution.guarantee is Guarantee.LOSSLESS
            assert solution.marginal_error <= 1e-12


@pytest.mark.parametrize("name", IID_CASES)
@pytest.mark.parametrize("tau", [1e-2, 1e-4])
def test_edges(name, tau):
    check_both_plans(IID_CASES[name], tau)


@pytest.mark.parametrize(
    ("vocab", "n", "k"), [(50_000, 2, 1000), (50_000, 3, 100), (5_000, 2, None)]
)
def test_buckets_stay_exactly_lossless_over_many_tokens(vocab, n, k):
    """Marginals are in closed form; conditionals of sampled tuples agree with them."""
    problem = language_like(vocab, n, k)
    solution = GlobalResolution(1e-3).solve(problem)
    assert solution.guarantee is Guarantee.LOSSLESS
    assert solution.marginal_error <= 1e-12
    alpha, _ = subset_selection(problem)
    assert 0.0 <= alpha - solution.acceptance <= 10e-3
    variables = solution.details["inner_variables"] + solution.details["outer_variables"]
    assert variables < 200


def test_conditionals_of_buckets_have_the_marginals_that_the_plan_claims():
    """Enumerates all tuples of a problem with few buckets."""
    problem = language_like(12, 3, seed=3)
    solution = GlobalResolution(0.02, limits={3: 6}).solve(problem)
    assert solution.details["inner_variables"] + solution.details["outer_variables"] < 12
    output, accepted = enumerated(solution.plan)
    np.testing.assert_allclose(output, problem.target, rtol=0.0, atol=1e-13)
    claimed = solution.plan.marginals().acceptance
    assert (claimed <= accepted + 1e-13).all()  # drafted replacements are omitted
    assert accepted.sum() - claimed.sum() <= 10 * 0.02


@given(iid_problems(), taus)
@examples(15)
def test_integrated_systems_are_as_lossless_as_listed_ones(problem, tau):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("otlp.solvers.global_resolution.global_resolution.LISTED_TERMS", 0)
        solution = GlobalResolution(tau).solve(problem)
    assert solution.guarantee is Guarantee.LOSSLESS
    output, _ = enumerated(solution.plan)
    assert np.abs(output - problem.target).sum() <= 1e-12
    assert np.abs(solution.plan.marginals().output - problem.target).sum() <= 1e-12
    check_acceptance(solution, brute_force_optimum(problem), tau)


@pytest.mark.parametrize(
    ("vocab", "n"),
    [(40, 8), (3_000, 5), pytest.param(100, 200, marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_many_drafts_need_no_list_of_sets(vocab, n):
    problem = language_like(vocab, n)
    solution = GlobalResolution(1e-3).solve(problem)
    assert solution.guarantee is Guarantee.LOSSLESS
    terms = solution.details["inner_terms"], solution.details["outer_terms"]
    assert max(terms) > 10_000  # type: ignore[type-var]
    alpha, _ = subset_selection(problem)
    assert 0.0 <= alpha - solution.acceptance <= 10e-3
    rng = np.random.default_rng(0)
    for row in problem.drafts.sample(rng, 20):
        law = solution.plan.conditional(row)
        assert law.min() >= 0.0
        assert law.sum() == pytest.approx(1.0, abs=1e-12)


def test_sampled_tokens_follow_the_slice():
    problem = language_like(2_000, 2, seed=1)
    plan = GlobalResolution(1e-3).solve(problem).plan
    rng = np.random.default_rng(0)
    row = problem.drafts.sample(rng)
    law = plan.conditional(row)
    drawn = np.bincount([plan.sample(row, rng) for _ in range(2_000)], minlength=2_000)
    # Upper limit of the count of a token of probability p, with total error probability 1e-6.
    for token in np.unique(row):
        spread = 6.0 * np.sqrt(2_000 * law[token] * (1.0 - law[token])) + 6.0
        assert abs(drawn[token] - 2_000 * law[token]) <= spread


def test_a_slice_solves_only_the_system_it_needs():
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))
    for solver in (GlobalResolution(), GlobalResolution.published()):
        whole = solver.solve(problem)
        plan = solver.prepare(problem, Guarantee.APPROXIMATE)
        for row in ([0, 0], [0, 1], [2, 1]):
            np.testing.assert_array_equal(plan.conditional(row), whole.plan.conditional(row))
    # With H* of many tokens and a limit of one variable, only the inner system terminates.
    problem = language_like(2_000, 2, 100)
    tight = GlobalResolution(1e-3, limits={2: 4})
    solution = tight.solve(problem)
    assert solution.status is Status.TRUNCATION_LIMIT
    assert "inner system" in solution.message
    plan = tight.prepare(problem)
    with pytest.raises(SolveError, match="inner system") as caught:
        plan.conditional(np.flatnonzero(solution.subset)[:2])
    np.testing.assert_array_equal(caught.value.solution.subset, solution.subset)
    assert solution.subset.shape == (problem.vocab_size,)
    outside = np.flatnonzero(~solution.subset & problem.drafts.support)[:1]
    assert plan.conditional(np.repeat(outside, 2)).sum() == pytest.approx(1.0)


def test_early_termination_says_which_limit_and_by_how_much():
    problem = language_like(2_000, 2, 1000)
    truncated = GlobalResolution.published(1e-3).solve(problem)
    assert truncated.status is Status.TRUNCATION_LIMIT
    assert truncated.plan is None
    assert "exceeds the limit of 50 variables for n = 2 by" in truncated.message
    short = {"max_iterations": 1, "newton_steps": 0}
    stalled = GlobalResolution(1e-4, **short).solve(problem)
    assert stalled.status is Status.ITERATION_LIMIT
    assert stalled.plan is None
    assert "the gradient is" in stalled.message
    assert "raise max_iterations or newton_steps" in stalled.message
    with pytest.raises(SolveError, match="gradient"):
        otlp.solve(problem, "global-resolution", tau=1e-4, **short)


def test_the_fallback_takes_over():
    fallback = MaxFlow()
    problem = language_like(2_000, 2, 100)
    alpha, _ = subset_selection(problem)
    solution = GlobalResolution.published(1e-3, fallback=fallback).solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL
    assert solution.acceptance == pytest.approx(alpha, abs=1e-9)
    assert solution.details["fallback"] == "max-flow"
    assert "fallback max-flow" in solution.message
    helpless = GlobalResolution.published(1e-3, fallback=MaxFlow(memory_limit=1000)).solve(problem)
    assert helpless.status is Status.TRUNCATION_LIMIT
    assert helpless.plan is None
    assert "The fallback max-flow does not support this problem" in helpless.message
    named = otlp.solve(problem, "global-resolution", limits={2: 4}, fallback="max-flow")
    assert named.guarantee is Guarantee.OPTIMAL and named.solver == "global-resolution"
    easy = language_like(2_000, 2, 10)
    assert "fallback" not in GlobalResolution(1e-3, fallback=fallback).solve(easy).details


def test_limits_of_the_paper():
    solver = GlobalResolution.published()
    assert [solver.limit(n) for n in range(1, 8)] == [50, 50, 20, 10, 10, 10, 10]
    default = GlobalResolution()
    for n in PAPER_LIMITS:
        assert default.limit(n) > PAPER_LIMITS[n]


def test_what_it_does_not_cover():
    explicit = otlp.Problem([0.5, 0.5], otlp.Explicit([[0, 1]], [1.0]))
    assert not GlobalResolution().supports(explicit)
    with pytest.raises(UnsupportedProblemError, match="max-flow"):
        GlobalResolution().solve(explicit)
    with pytest.raises(UnsupportedProblemError, match=r"i\.i\.d"):
        GlobalResolution().prepare(explicit)
    assert "1000" in GlobalResolution().supports(language_like(5, 1001)).reason
    with pytest.raises(UnknownSolverError, match="did you mean 'max-flow'"):
        make_solver("global-resolution", fallback="maxflo")
    hash(GlobalResolution.published())


@given(st.integers(1, 9), st.floats(0.01, 0.98), st.floats(1e-9, 0.5), st.floats(0.0, 0.5))
def test_a_single_variable_starts_at_its_minimum(n, share, draft, ignored):
    terms = list_sets(np.array([draft]), n, ignored)
    wanted = share * terms.mass
    start = starting_point(wanted, np.array([draft]), n, 1.0, ignored)
    found = LogSumExp(terms, wanted, 1.0).evaluate(start)[1]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("slack", [0.0, 1.0])
def test_newton_steps_go_where_l_bfgs_b_stalls(slack):
    """A feasible system with tight constraints and its minimum at infinity."""
    rng = np.random.default_rng(2)
    draft = rng.dirichlet(np.ones(8))
    terms = list_sets(draft, 3)
    prefix = np.append(0.0, np.cumsum(draft))
    wanted = np.diff(prefix**3)  # the vertex of one ordering: every prefix is tight
    function = LogSumExp(terms, wanted, slack)
    start = starting_point(wanted, draft, 3, slack, 0.0)
    tolerance = 1e-9
    stalled = solve_convex(function, start, tolerance, 25, 0)
    assert stalled.gradient_norm > tolerance
    short = solve_convex(function, start, tolerance, 25, 2)
    assert (short.newton_steps, short.iterations) == (2, 25)  # the other continues
    assert short.gradient_norm < solve_convex(function, start, tolerance, 0, 2).gradient_norm
    direct = solve_convex(function, start, tolerance, 25, 60)
    assert direct.gradient_norm <= tolerance
    gradient = direct.given - wanted
    assert np.abs(gradient).sum() == direct.gradient_norm


def test_the_published_plan_starts_at_zero():
    """If the first gradient is small enough, the result is zero: its softmax is uniform."""
    problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))
    solution = GlobalResolution.published(tau=0.9).solve(problem)
    assert solution.details["inner_iterations"] == solution.details["outer_iterations"] == 0
    # only the outer system: tokens outside H* = {0} share its acceptance equally
    np.testing.assert_allclose(solution.plan.conditional([1, 2]), [0.0, 0.5, 0.5])


@pytest.mark.parametrize("scheme", ["without-replacement", "greedy", "hub", "independent"])
def test_drafts_of_appendix_s_are_refused_with_the_solver_that_serves_them(scheme):
    problem = otlp.Problem([0.1, 0.6, 0.3], make_scheme(scheme, np.array([0.5, 0.3, 0.2]), 2))
    capability = GlobalResolution().supports(problem)
    assert not capability
    name = capability.reason.rpartition("use ")[2]
    assert make_solver(name).solve(problem).guarantee is Guarantee.OPTIMAL
