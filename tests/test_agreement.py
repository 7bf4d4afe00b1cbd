"""One table: every solver against every family of problems, the degenerate ones included."""

import pytest
from hypothesis import given, settings

import otlp
from otlp.solution import Guarantee, Status
from otlp.solvers import SOLVERS, make_solver
from tests.instances import DEGENERATE, brute_force_optimum, check_solution, iid_problems, problems

EXACT = (
    "auto", "linear-program", "max-flow", "slackness", "martingale", "orderings",
    "random-ranks", "greedy", "hub", "speculative-sampling",
)  # fmt: skip


def check(name: str, problem: otlp.Problem, optimum: float) -> None:
    """Enumerate the plan of one solver, and hold it to what its kind promises."""
    solver = make_solver(name)
    capability = solver.supports(problem)
    if not capability:
        assert capability.reason
        return
    solution = solver.solve(problem)
    assert solution.status is not Status.CERTIFICATE_FAILED, solution
    if solution.plan is None:
        assert name not in EXACT
        return
    check_solution(solution)
    assert solution.acceptance <= optimum + 1e-9
    assert solution.upper_bound >= optimum - 1e-9
    if name in EXACT:
        assert solution.guarantee is Guarantee.OPTIMAL
        tolerance = 1e-6 if name in ("orderings", "random-ranks", "auto") else 1e-9
        assert solution.acceptance == pytest.approx(optimum, abs=tolerance)
    else:
        assert solution.guarantee is Guarantee.LOSSLESS


@given(iid_problems())
@settings(max_examples=500)
def test_three_exact_solvers_agree_with_subset_selection(problem: otlp.Problem) -> None:
    alpha = otlp.optimal_acceptance(problem)
    for name in ("linear-program", "max-flow", "martingale"):
        solution = otlp.solve(problem, name)
        assert solution.acceptance == pytest.approx(alpha, abs=1e-7)
        assert solution.guarantee is Guarantee.OPTIMAL
        check_solution(solution)


@pytest.mark.parametrize("name", SOLVERS)
@given(problem=problems())
@settings(max_examples=40)
def test_every_solver_on_every_scheme(name: str, problem: otlp.Problem) -> None:
    check(name, problem, brute_force_optimum(problem))


@pytest.mark.parametrize("family", DEGENERATE)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_at_the_edges(name: str, family: str) -> None:
    problem = DEGENERATE[family]
    check(name, problem, brute_force_optimum(problem))


def test_the_table_is_complete() -> None:
    """A new solver says here whether it is exact."""
    heuristic = {"global-resolution", "k-seq", "recursive-rejection", "naive"}
    assert set(SOLVERS) == set(EXACT) | heuristic
