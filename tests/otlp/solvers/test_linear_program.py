from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.export.cvxpy_program import cvxpy_problem
from otlp.solvers.linear_program import LinearProgram
from tests.instances import DEGENERATE, check_solution, large

FORMS = ("relaxed", "full")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["one draft", "target partly outside the support", "explicit: a token never drafted"]
)
def test_agrees_with_cvxpy(name: str, form: str) -> None:
    pytest.importorskip("cvxpy")
    solution = LinearProgram(form).solve(DEGENERATE[name])
    program = cvxpy_problem(DEGENERATE[name], form)
    program.solve(solver="CLARABEL")  # independent of HiGHS; accurate to about 1e-8
    assert program.status == "optimal"
    assert abs(solution.acceptance - float(program.value)) <= 1e-7
    if form == "full":
        (joint,) = program.variables()
        size = DEGENERATE[name].vocab_size
        assert joint.shape == (size, len(DEGENERATE[name].drafts.enumerate_tuples().mass))


@pytest.mark.parametrize(
    ("k", "form", "method"),
    [
        (60, "relaxed", "primal simplex"),
        (20, "full", "dual simplex"),
        (28, "full", "interior point"),
    ],
)
def test_every_method_of_highs_is_exact(k: int, form: str, method: str) -> None:
    solution = LinearProgram(form).solve(large(k, 2))
    assert solution.details["method"] == method
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
    assert abs(solution.gap) <= 1e-9
    check_solution(solution)


def test_supports_counts_only_tokens_that_can_be_drafted() -> None:
    target = np.full(100_000, 1e-5)
    draft = np.zeros(100_000)
    draft[[5, 70_000, 99_999]] = 0.2, 0.3, 0.5
    solution = LinearProgram("full").solve(otlp.Problem(target, otlp.IID(draft, 3)))
    assert solution.details["variables"] == 4 * 3**3
    assert solution.guarantee is otlp.Guarantee.OPTIMAL


def test_a_rounding_error_of_the_masses_is_no_contradiction() -> None:
    """The masses of tuples and target sum to 1 + 2e-16 and 1: HiGHS reported this as infeasible."""
    first = [0.0, 1.0, 0.0, 1e-13, 0.0]
    drafts = otlp.Independent([
        [1e-30, 1.0, 2.2e-16, 1e-13, 0.0], first,
        [0.0, 1.0, 2.2e-16, 1e-13, 1e-30], [1e-30, 1.0, 0.0, 1e-13, 2.2e-16],
    ])  # fmt: skip
    target = np.array([0.5, 0.25, 2.5e-14, 7.5e-14, 0.25])
    solution = LinearProgram("full").solve(otlp.Problem(target / target.sum(), drafts))
    assert solution.guarantee is otlp.Guarantee.OPTIMAL, str(solution)
    check_solution(solution)
