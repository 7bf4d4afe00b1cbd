"""Solutions can be sent to another process: their copies give the same conditionals."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import otlp
from otlp.solvers import SOLVERS, GlobalResolution, LinearProgram, Slackness, Solver, make_solver
from tests.instances import DEGENERATE

NAMES = ("target partly outside the support", "independent: three that differ", "greedy: ties")
WAYS: dict[str, Solver] = {name: make_solver(name) for name in SOLVERS} | {
    "full": LinearProgram("full"),
    "published": GlobalResolution.published(),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_a_pickled_solution_is_the_same(way: str, name: str) -> None:
    problem, solver = DEGENERATE[name], WAYS[way]
    if not solver.supports(problem):
        pytest.skip("not supported")
    solution = solver.solve(problem)
    assert solution.plan is not None
    for copied in (pickle.loads(pickle.dumps(solution)), copy.deepcopy(solution)):
        assert str(copied) == str(solution)
        np.testing.assert_array_equal(copied.subset, solution.subset)
        for tokens in problem.drafts.enumerate_tuples().tokens[:5]:
            np.testing.assert_array_equal(
                copied.plan.conditional(tokens), solution.plan.conditional(tokens)
            )
        assert not copied.plan.problem.target.flags.writeable
    assert pickle.loads(pickle.dumps(solver)) == solver


def test_prepared_slices_can_be_pickled() -> None:
    problem = DEGENERATE["target partly outside the support"]
    for solver in (Slackness(), GlobalResolution()):
        prepared = pickle.loads(pickle.dumps(solver.prepare(problem)))
        assert prepared.conditional([0, 1]).sum() == pytest.approx(1.0, abs=1e-12)


def test_copies_of_a_problem_stay_read_only() -> None:
    problem = otlp.Problem([0.5, 0.5], otlp.IID([0.3, 0.7], 2))
    for copied in (copy.copy(problem), copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        assert not copied.target.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            copied.target[0] = 1.0
