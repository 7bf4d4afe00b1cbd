"""One table: every solver against every family of problems, the degenerate ones included."""

import pytest
from hypothesis import given, settings

import otlp
from otlp.errors import EngineNotFoundError
from otlp.solution import Guarantee, Status
from otlp.solvers import SOLVERS, LinearProgram, MaxFlow, Orderings, Solver, make_solver
from tests.instances import DEGENERATE, brute_force_optimum, check_solution, problems

EXACT = (
    "auto", "linear-program", "max-flow", "slackness", "martingale", "orderings",
    "random-ranks", "greedy", "hub", "speculative-sampling",
)  # fmt: skip
WAYS: dict[str, Solver] = {name: make_solver(name) for name in SOLVERS} | {
    "the full program": LinearProgram("full"),
    "max-flow by graph-tool": MaxFlow("graph-tool"),
    "orderings to 1e-10": Orderings(gap=1e-10),
}
"""Every solver, and what else its options make of one."""


def check(way: str, problem: otlp.Problem) -> None:
    """Enumerate the plan of one solver, and hold it to what its kind promises."""
    solver, optimum = WAYS[way], brute_force_optimum(problem)
    capability = solver.supports(problem)
    if not capability:
        assert capability.reason
        return
    try:
        solution = solver.solve(problem)
    except EngineNotFoundError as error:
        pytest.skip(str(error))
    assert solution.status is not Status.CERTIFICATE_FAILED, solution
    if solution.plan is None:
        assert solver.name not in EXACT
        return
    check_solution(solution, 1e-11 if isinstance(solver, Orderings) else 1e-9)
    assert solution.acceptance <= optimum + 1e-9
    assert solution.upper_bound >= optimum - 1e-9
    if solver.name not in EXACT:
        assert solution.guarantee is Guarantee.LOSSLESS
        return
    assert solution.guarantee is Guarantee.OPTIMAL
    tolerance = 1e-6 if way in ("orderings", "random-ranks", "auto") else 1e-9
    assert solution.acceptance == pytest.approx(optimum, abs=tolerance)
    if isinstance(solver, LinearProgram | MaxFlow):
        assert solution.status is Status.SOLVED and abs(solution.gap) <= 1e-9
        assert solution.subset is not None and not solution.subset[~problem.drafts.support].any()


@pytest.mark.parametrize("way", WAYS)
@given(problem=problems())
@settings(max_examples=80)
def test_every_solver_on_every_scheme(way: str, problem: otlp.Problem) -> None:
    check(way, problem)


@pytest.mark.parametrize("family", DEGENERATE)
@pytest.mark.parametrize("way", WAYS)
def test_every_solver_at_the_edges(way: str, family: str) -> None:
    check(way, DEGENERATE[family])


def test_the_table_is_complete() -> None:
    """A new solver says here whether it is exact."""
    heuristic = {"global-resolution", "k-seq", "recursive-rejection", "naive"}
    assert set(SOLVERS) == set(EXACT) | heuristic
