"""Every public object survives a pickle and a copy, and says the same afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otlp
from otlp import errors
from otlp.solvers import SOLVERS, make_solver
from otlp.solvers.solver import Solver

P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
SCHEMES = {
    "iid": otlp.IID(Q, 2),
    "independent": otlp.Independent([Q, P]),
    "without replacement": otlp.WithoutReplacement(Q, 2),
    "greedy": otlp.Greedy(Q, 2),
    "hub": otlp.Hub(Q),
    "explicit": otlp.Explicit([[0, 1], [2, 2]], [0.6, 0.4], 3),
    "one draft": otlp.IID(Q, 1),
}

SUPPORTED = [
    (name, solver)
    for name, drafts in SCHEMES.items()
    for solver in SOLVERS
    if make_solver(solver).supports(otlp.Problem(P, drafts))
]


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


AGAIN = [copy.copy, copy.deepcopy, pickled]


def arrays_of(thing: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value for name, value in vars(thing).items() if isinstance(value, np.ndarray)}


def check_read_only(before: Any, after: Any) -> None:
    for name, array in arrays_of(before).items():
        if not array.flags.writeable:
            assert not vars(after)[name].flags.writeable, f"{type(before).__name__}.{name}"


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("name", SCHEMES)
def test_draft_schemes_and_problems(name: str, again: Callable[[Any], Any]) -> None:
    problem = otlp.Problem(P, SCHEMES[name])
    other = again(problem)
    check_read_only(problem, other)
    check_read_only(problem.drafts, other.drafts)
    assert repr(other.drafts) == repr(problem.drafts)
    tuples = problem.drafts.enumerate_tuples()
    np.testing.assert_array_equal(other.target, problem.target)
    np.testing.assert_array_equal(other.drafts.probability(tuples.tokens), tuples.mass)
    with pytest.raises(ValueError, match="read-only"):
        other.target[0] = 1.0


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(("name", "solver"), SUPPORTED)
def test_solutions_and_plans(name: str, solver: str, again: Callable[[Any], Any]) -> None:
    problem = otlp.Problem(P, SCHEMES[name])
    solution = otlp.solve(problem, solver)
    other = again(solution)
    assert str(other) == str(solution) and other.guarantee is solution.guarantee
    for row in problem.drafts.enumerate_tuples().tokens:
        np.testing.assert_array_equal(other.plan.conditional(row), solution.plan.conditional(row))
        draws = [plan.sample(row, np.random.default_rng(0)) for plan in (other.plan, solution.plan)]
        assert draws[0] == draws[1]
    np.testing.assert_array_equal(other.plan.acceptance_vector, solution.plan.acceptance_vector)


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers(solver: str, again: Callable[[Any], Any]) -> None:
    made = make_solver(solver)
    assert again(made) == made
    assert isinstance(again(made), Solver)


@pytest.mark.parametrize("again", AGAIN)
def test_reports_and_captures(again: Callable[[Any], Any]) -> None:
    report = otlp.audit(make_solver("martingale"), P, otlp.IID(Q, 2))
    assert str(again(report)) == str(report)
    capture = otlp.captures.builtin()[:3]
    other = again(capture)
    np.testing.assert_array_equal(other.target_logits, capture.target_logits)
    check_read_only(capture, other)


def _errors() -> list[Exception]:
    found: list[Exception] = []
    for call in (
        lambda: otlp.IID([0.5, 0.6], 2),
        lambda: otlp.IID(Q, 0),
        lambda: otlp.solve(otlp.Problem(P, otlp.IID(Q, 2)), "nobody"),
        lambda: otlp.solve(otlp.Problem(P, otlp.IID(Q, 2)), "greedy"),
        lambda: otlp.captures.load("/nowhere"),
        lambda: otlp.captures.builtin()[1000],
        lambda: otlp.solve(
            otlp.Problem(P, otlp.IID(Q, 2)), "global-resolution", limits={1: 1}, tau=1e-12
        ),
        lambda: otlp.IID([0.01] * 100, 10).enumerate_tuples(),
        lambda: otlp.Problem(P, otlp.IID(Q, 2)).check_draft_tokens([0, 7]),
    ):
        try:
            call()
        except otlp.errors.OTLPError as error:
            found.append(error)
    return found


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_every_error_comes_back_from_a_worker(name: str) -> None:
    """Dask carries errors with `__new__` and their attributes, once it is imported."""
    pytest.importorskip("distributed")
    error = getattr(errors, name)(*((3, 2) if name == "TooFewTokensError" else ("why",)))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("again", AGAIN)
def test_errors(again: Callable[[Any], Any]) -> None:
    raised = _errors()
    assert len(raised) >= 8
    for error in raised:
        other = again(error)
        assert type(other) is type(error) and str(other) == str(error)
