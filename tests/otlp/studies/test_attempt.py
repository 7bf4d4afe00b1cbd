"""The common loop: reasons for failures, and times without compilation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numba import njit

import otlp
from otlp.solvers import SOLVERS, line_up, make_solver
from otlp.studies.attempt import WARM_WORK, attempt, small_problems, without_compiling
from otlp.studies.crosscheck import complaints, cross_check

PROBLEM = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], 2))


def test_a_solution_or_the_reason() -> None:
    solved = attempt(make_solver("martingale"), PROBLEM)
    assert solved.solution is not None and not solved.reason
    refused = attempt(make_solver("hub"), PROBLEM)
    assert refused.solution is None and "SpecHub" in refused.reason
    p, q = np.random.default_rng(0).dirichlet(np.ones(60), 2)
    late = make_solver("linear-program", time_limit=1e-3)
    stopped = attempt(late, otlp.Problem(p, otlp.IID(q, 3)))
    assert stopped.solution is not None and "time limit" in stopped.reason


def test_what_compiles_is_done_again() -> None:
    kernel = njit(lambda x: x + 1)
    calls = []

    def action() -> int:
        calls.append(kernel(3))
        return len(calls)

    assert without_compiling(action) == 2
    assert without_compiling(action) == 3


def test_optimal_answers_agree_within_their_gaps() -> None:
    solvers = line_up(["martingale", "orderings", "max-flow", "naive"], 60.0)
    check = cross_check(PROBLEM, solvers, 1e-12)
    assert not check.complaints
    assert [name for name, found in check.attempts.items() if found.reason] == []


@pytest.mark.parametrize(("shift", "wrong"), [(2e-7, True), (5e-8, False)])
def test_an_acceptance_above_a_bound_is_complained_of(shift: float, wrong: bool) -> None:
    """Reported if the bound is too low by more than the tolerance, but not by less."""
    right, other = (make_solver(name).solve(PROBLEM) for name in ("max-flow", "martingale"))
    low = replace(other, upper_bound=other.upper_bound - shift)
    assert any("above the bound" in text for text in complaints([right, low], 1e-7)) == wrong


@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name]().supports(PROBLEM)])
def test_warm_up_problems_are_small_enough_for_every_solver(name: str) -> None:
    solver = SOLVERS[name]()
    supported = [problem for problem in small_problems() if solver.supports(problem)]
    assert any(solver.work(problem) <= WARM_WORK for problem in supported)
