"""Every solver, with and without certificate, against every family of problems."""

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import otlp
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Guarantee, Status
from otlp.solvers import (
    SOLVERS,
    GlobalResolution,
    LinearProgram,
    MaxFlow,
    Orderings,
    RandomRanks,
    RandomWeights,
    RecursiveRejection,
    Slackness,
    Solver,
    make_solver,
)
from otlp.solvers.solver import ClosedForm
from tests.examples import examples
from tests.instances import (
    DEGENERATE,
    LARGER_SCHEMES,
    SCHEMES,
    SMALL,
    TOLERANCE,
    brute_force_optimum,
    check_exact_acceptance,
    check_solution,
    exact_solvers,
    language_like,
    large,
    supported,
)

WAYS: dict[str, Solver] = {name: make_solver(name) for name in SOLVERS} | {
    "the full program": LinearProgram("full"),
    "orderings to 1e-10": Orderings(gap=1e-10),
    "random-ranks to 1e-7": RandomRanks(gap=1e-7),
    "random-weights to 1e-9": RandomWeights(gap=1e-9),
}
"""Every solver, and variants by option."""


def check(way: str, problem: otlp.Problem, optimum: float) -> None:
    """Enumerate the plan of a solver, and check the promises of this kind of solver."""
    solver = WAYS[way]
    capability = solver.supports(problem)
    if not capability:
        assert len(capability.reason) > 40
        return
    solution = solver.solve(problem)
    assert solution.status is not Status.CERTIFICATE_FAILED, solution
    if solution.plan is None:
        assert solver.name == "global-resolution"
        return
    if solver.promise >= Guarantee.LOSSLESS:
        check_prepared(solver, solution.plan)
    rounding = 1e-9
    if isinstance(solver, ClosedForm | RecursiveRejection):
        rounding = 1e-12
        check_exact_acceptance(solution)
    elif isinstance(solver, Orderings | RandomRanks | RandomWeights):
        assert solution.marginal_error <= (1e-11 if isinstance(solver, RandomRanks) else 1e-12)
        check_solution(solution, 1e-11)
    else:
        check_solution(solution)
    assert solution.acceptance <= optimum + rounding
    assert solution.upper_bound >= optimum - rounding
    if solver.name not in exact_solvers():
        assert solution.guarantee is Guarantee.LOSSLESS
        return
    assert solution.guarantee is Guarantee.OPTIMAL
    tolerance = 1e-6 if way.startswith(("orderings", "random-", "auto")) else rounding
    tolerance = 1e-9 if way == "orderings to 1e-10" else tolerance
    assert solution.acceptance == pytest.approx(optimum, abs=tolerance)
    if isinstance(solver, LinearProgram | MaxFlow):
        assert solution.status is Status.SOLVED and abs(solution.gap) <= 1e-9
        assert solution.subset is not None and not solution.subset[~problem.drafts.support].any()


def check_prepared(solver: Solver, certified: otlp.Plan) -> None:
    """Enumerate a plan without a certificate: its conditionals equal the certified ones."""
    problem = certified.problem
    prepared, tuples = solver.prepare(problem), problem.drafts.enumerate_tuples()
    conditionals = np.array([prepared.conditional(row) for row in tuples.tokens])
    again = np.array([certified.conditional(row) for row in tuples.tokens])
    # For one draft, global resolution prepares the optimum and certifies its solution within tau.
    closed_form = isinstance(solver, GlobalResolution) and problem.n == 1
    tolerance = 10.0 * solver.tau if closed_form else TOLERANCE  # type: ignore[attr-defined]
    joint = tuples.mass[:, None] * (conditionals - again)
    np.testing.assert_allclose(joint, 0.0, atol=tolerance)
    assert np.abs(tuples.mass @ conditionals - problem.target).sum() <= TOLERANCE


def check_all(problem: otlp.Problem) -> None:
    optimum = brute_force_optimum(problem)
    for way in WAYS:
        note(way)
        check(way, problem, optimum)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
@examples(15)
def test_every_solver_on_every_scheme(scheme: str, data: st.DataObject) -> None:
    check_all(data.draw(SCHEMES[scheme]))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_every_solver_on_larger_problems(scheme: str, data: st.DataObject) -> None:
    check_all(data.draw(LARGER_SCHEMES[scheme]))


@pytest.mark.parametrize("family", DEGENERATE)
def test_every_solver_at_the_edges(family: str) -> None:
    problem = DEGENERATE[family]
    optimum = brute_force_optimum(problem)
    for way in WAYS:
        check(way, problem, optimum)


LARGER = [
    *((MaxFlow(), large(k, n, share))
      for k, n in ((100, 2), (40, 3), (12, 8)) for share in (0.1, 3.0)),
    *((Slackness(), language_like(2 * k, n, k)) for k, n in ((10, 4), (40, 2))),
]  # fmt: skip


@pytest.mark.parametrize(("solver", "problem"), LARGER, ids=str)
def test_networks_reach_the_optimum_of_larger_problems(
    solver: Solver, problem: otlp.Problem
) -> None:
    solution = solver.solve(problem)
    assert solution.guarantee is Guarantee.OPTIMAL
    assert abs(solution.acceptance - subset_selection(problem)[0]) <= 1e-10
    assert abs(solution.gap) <= 1e-10 and solution.marginal_error <= 1e-12


def test_every_scheme_has_an_exact_solver() -> None:
    solved = {name for name, solver in supported(SMALL) if solver in exact_solvers() - {"auto"}}
    assert solved == set(SMALL) and "naive" not in exact_solvers()
