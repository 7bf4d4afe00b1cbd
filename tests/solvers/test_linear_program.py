from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.solvers.cvxpy_reference import cvxpy_problem
from otlp.solvers.linear_program import LinearProgram
from tests.instances import DEGENERATE, check_solution

FORMS = ("relaxed", "full")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["one draft", "target partly outside the support", "explicit: a token never drafted"]
)
def test_agrees_with_cvxpy(name: str, form: str) -> None:
    pytest.importorskip("cvxpy")
    solution = LinearProgram(form).solve(DEGENERATE[name])
    program = cvxpy_problem(DEGENERATE[name], form)
    program.solve(solver="CLARABEL")  # no relative of HiGHS; good to about 1e-8
    assert program.status == "optimal"
    assert abs(solution.acceptance - float(program.value)) <= 1e-7


def large(k: int, n: int) -> otlp.Problem:
    p, q = np.random.default_rng(k).dirichlet(np.full(k, 0.3), 2)
    return otlp.Problem(p, otlp.IID(q, n))


@pytest.mark.parametrize(
    ("k", "n", "form", "method"),
    [
        (60, 2, "relaxed", "primal simplex"),
        (20, 2, "full", "dual simplex"),
        (28, 2, "full", "interior point"),
    ],
)
def test_every_method_of_highs_is_exact(k: int, n: int, form: str, method: str) -> None:
    problem = large(k, n)
    solution = LinearProgram(form).solve(problem)
    assert solution.details["method"] == method
    assert solution.guarantee is otlp.Guarantee.OPTIMAL
    assert abs(solution.gap) <= 1e-9
    check_solution(solution)


@pytest.mark.parametrize("form", FORMS)
def test_time_limit_is_a_status(form: str) -> None:
    solver = LinearProgram(form, time_limit=1e-6)
    solution = solver.solve(large(28, 2))
    assert solution.status is otlp.Status.TIME_LIMIT
    assert solution.plan is None and solution.guarantee is otlp.Guarantee.NONE
    assert "HiGHS" in solution.message


@pytest.mark.parametrize(("form", "n"), [("relaxed", 4), ("full", 3)])
def test_supports_says_why_it_refuses(form: str, n: int) -> None:
    capability = LinearProgram(form).supports(large(200, n))
    assert not capability
    assert f"{form} linear program" in capability.reason
    assert "2,048 MiB" in capability.reason and "top_k" in capability.reason
    assert LinearProgram(form, memory_limit=2**60).supports(large(200, n))


def test_supports_counts_only_tokens_that_can_be_drafted() -> None:
    target = np.full(100_000, 1e-5)
    draft = np.zeros(100_000)
    draft[[5, 70_000, 99_999]] = 0.2, 0.3, 0.5
    solution = LinearProgram("full").solve(otlp.Problem(target, otlp.IID(draft, 3)))
    assert solution.details["variables"] == 4 * 3**3
    assert solution.guarantee is otlp.Guarantee.OPTIMAL


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"form": "relaxd"}, "did you mean 'relaxed'"),
        ({"time_limit": 0.0}, "time_limit is 0.0"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"memory_limit": -1}, "memory_limit is -1"),
        ({"memory_limit": None}, "memory_limit is None"),
        ({"memory_limit": "2GB"}, "memory_limit is '2GB'"),
        ({"time_limit": "abc"}, "time_limit is 'abc'"),
        ({"time_limit": True}, "time_limit is True"),
        ({"form": 3}, "form is 3"),
    ],
)
def test_options_out_of_range(options: dict[str, object], words: str) -> None:
    with pytest.raises(otlp.errors.InvalidInputError, match=words):
        LinearProgram(**options)  # type: ignore[arg-type]


def test_a_rounding_error_of_the_masses_is_no_contradiction() -> None:
    """The tuples' masses sum to 1 + 2e-16, the target's to 1: HiGHS called that infeasible."""
    first = [0.0, 1.0, 0.0, 1e-13, 0.0]
    drafts = otlp.Independent(
        [
            [1e-30, 1.0, 2.2e-16, 1e-13, 0.0],
            first,
            [0.0, 1.0, 2.2e-16, 1e-13, 1e-30],
            [1e-30, 1.0, 0.0, 1e-13, 2.2e-16],
        ]
    )
    target = np.array([0.5, 0.25, 2.5e-14, 7.5e-14, 0.25])
    solution = LinearProgram("full").solve(otlp.Problem(target / target.sum(), drafts))
    assert solution.guarantee is otlp.Guarantee.OPTIMAL, str(solution)
    check_solution(solution)
