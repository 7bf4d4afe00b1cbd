"""A tuple of a probability that underflows is on no list, and yet it can be drafted."""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.solvers import LinearProgram, MaxFlow, Slackness, Solver

SOLVERS = [LinearProgram(), LinearProgram("full"), MaxFlow(), Slackness()]
NAMES = ["relaxed", "full", "max-flow", "slackness"]


@pytest.mark.parametrize("solver", SOLVERS, ids=NAMES)
def test_tuples_that_are_not_listed_are_verified(solver: Solver) -> None:
    # 1e-320 * 1 * 1e-300 is zero, so (0, 1, 1) is not listed; other tuples are.
    drafts = otlp.Independent([[1e-320, 1.0], [0.0, 1.0], [1.0, 1e-300]])
    plan = solver.solve(otlp.Problem([1.0, 0.0], drafts)).plan
    np.testing.assert_array_equal(plan.conditional([0, 1, 1]), [1.0, 0.0])
    assert plan.sample([0, 1, 1], np.random.default_rng(0)) == 0
    assert plan.sample_many([[0, 1, 1], [1, 1, 0]], np.random.default_rng(0)).tolist() == [0, 0]
    iid = otlp.Problem([0.5, 0.5], otlp.IID([1.0, 1e-200], 2))
    plan = solver.solve(iid).plan
    given = plan.conditional([1, 1])
    assert given.min() >= 0.0 and given.sum() == pytest.approx(1.0, abs=1e-12)
