"""What a caller has set by `np.errstate` changes no answer: probabilities underflow as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.decode.models.model import Sampling
from otlp.distribution import FloatArray
from otlp.errors import OTLPError
from otlp.solvers import SOLVERS
from tests.instances import DEGENERATE

TINY = np.array([1.0, 1e-300, 5e-324])
PEAKED = [0.999998, 1e-6, 1e-6]
PROBLEMS = {
    **{
        name: case
        for name, case in DEGENERATE.items()
        if 0.0 < case.target[case.target > 0].min() < 1e-99
    },
    "without replacement": otlp.Problem([0.5, 0.25, 0.25], otlp.WithoutReplacement(PEAKED, 2)),
    "tiny without replacement": otlp.Problem(TINY[::-1], otlp.WithoutReplacement(TINY, 2)),
    "tiny greedy": otlp.Problem(TINY[::-1], otlp.Greedy(TINY, 2)),
    "tiny independent": otlp.Problem(TINY[::-1], otlp.Independent([TINY, TINY])),
    "tiny often": otlp.Problem(TINY[::-1], otlp.IID(TINY, 50)),
    "hub": otlp.Problem([1e-300, 0.5, 0.5], otlp.Hub([0.998, 0.001, 0.001])),
}


def answers(problem: otlp.Problem, solver: str) -> Iterator[Callable[[], Any]]:
    """What is asked of a problem, one after the other."""
    if solver == "auto":
        yield lambda: otlp.optimal_acceptance(problem)
        yield lambda: problem.drafts.probability(problem.drafts.sample(np.random.default_rng(0)))
    tokens = problem.drafts.sample(np.random.default_rng(1))
    plan = otlp.solve(problem, solver).plan
    yield lambda: otlp.solve(problem, solver).acceptance
    if plan is not None:
        yield lambda: plan.conditional(tokens)
        yield lambda: plan.sample(tokens, np.random.default_rng(2))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_solver_looks_at_it(problem: otlp.Problem) -> None:
    for solver in (*(name for name in SOLVERS if name != "cvxpy"), "auto"):
        try:
            asked = [(ask, ask()) for ask in answers(problem, solver)]
        except OTLPError:
            continue  # what the solver does not take
        with np.errstate(all="raise"):
            for ask, answer in asked:
                assert np.array_equal(ask(), answer, equal_nan=True), solver


LOGITS = [[0.0, -800.0], [0.0, -1e308], [1e308, -1e308], [0.0, -np.inf]]


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("temperature", [1e-300, 0.01, 1.0, 100.0])
def test_no_distribution_looks_at_it(logits: list[float], temperature: float) -> None:
    def found() -> list[FloatArray]:
        rows = np.array([logits])
        return [
            otlp.softmax(rows, temperature),
            Sampling(temperature).distributions(rows),
            Sampling(temperature, 1, 0.5).distributions(rows),
        ]

    wanted = found()
    with np.errstate(all="raise"):
        assert np.array_equal(found(), wanted)
