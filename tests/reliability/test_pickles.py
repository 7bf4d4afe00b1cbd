"""Every public object is equal after pickling and copying."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import otlp
from otlp import errors
from otlp.auditing import AuditSettings
from otlp.solvers import SOLVERS, GlobalResolution, LinearProgram, Slackness, Solver, make_solver
from tests.example_captures import check_same
from tests.instances import DEGENERATE, SMALL

P, Q = SMALL["iid"].target, SMALL["iid"].drafts.mean_draft
PROBLEMS = SMALL | {name: DEGENERATE[name] for name in (
    "target partly outside the support", "independent: three that differ", "greedy: ties"
)}  # fmt: skip
WAYS: dict[str, Solver] = {name: make_solver(name) for name in SOLVERS} | {
    "full": LinearProgram("full"),
    "published": GlobalResolution.published(),
}


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
@pytest.mark.parametrize("name", PROBLEMS)
def test_draft_schemes_and_problems(name: str, again: Callable[[Any], Any]) -> None:
    problem = PROBLEMS[name]
    drafts = problem.drafts
    assert not drafts.inclusion.flags.writeable and not drafts.mean_draft.flags.writeable
    other = again(problem)
    check_read_only(problem, other)
    check_read_only(drafts, other.drafts)
    for before, after in ((problem, other), (drafts, other.drafts), (drafts, again(drafts))):
        for key, array in arrays_of(before).items():
            np.testing.assert_array_equal(arrays_of(after)[key], array)
    assert repr(other.drafts) == repr(drafts)
    tuples, copied = drafts.enumerate_tuples(), other.drafts.enumerate_tuples()
    np.testing.assert_array_equal(copied.tokens, tuples.tokens)
    np.testing.assert_array_equal(copied.mass, tuples.mass)
    np.testing.assert_array_equal(other.drafts.probability(tuples.tokens), tuples.mass)
    with pytest.raises(ValueError, match="read-only"):
        other.target[0] = 1.0


@pytest.mark.parametrize("way", WAYS)
def test_solutions_and_plans(way: str) -> None:
    for name in (name for name, problem in PROBLEMS.items() if WAYS[way].supports(problem)):
        check_solution(WAYS[way].solve(PROBLEMS[name]))


def check_solution(solution: otlp.Solution) -> None:
    assert solution.plan is not None
    for other in (again(solution) for again in AGAIN):
        assert str(other) == str(solution) and other.guarantee is solution.guarantee
        np.testing.assert_array_equal(other.subset, solution.subset)
        plans = (other.plan, solution.plan)
        for row in solution.plan.problem.drafts.enumerate_tuples().tokens:
            one, two = (plan.conditional(row) for plan in plans)
            np.testing.assert_array_equal(one, two)
            one, two = (plan.sample(row, np.random.default_rng(0)) for plan in plans)
            assert one == two
        np.testing.assert_array_equal(*(plan.marginals().acceptance for plan in plans))
        assert not other.plan.problem.target.flags.writeable


@pytest.mark.parametrize("way", WAYS)
def test_solvers(way: str) -> None:
    for made in (again(WAYS[way]) for again in AGAIN):
        assert made == WAYS[way] and isinstance(made, Solver)


@pytest.mark.parametrize("solver", [Slackness(), GlobalResolution()])
def test_prepared_plans(solver: Solver) -> None:
    prepared = pickled(solver.prepare(DEGENERATE["target partly outside the support"]))
    assert prepared.conditional([0, 1]).sum() == pytest.approx(1.0, abs=1e-12)


def test_reports_and_captures() -> None:
    settings = AuditSettings(samples=2_000)
    report = otlp.audit(make_solver("martingale"), P, otlp.IID(Q, 2), settings=settings)
    capture = otlp.captures.builtin()[:3]
    for again in AGAIN:
        assert str(again(report)) == str(report)
        other = again(capture)
        check_same(other, capture)
        check_read_only(capture, other)


RAISING: dict[str, Callable[[], Any]] = {
    "distribution": lambda: otlp.IID([0.5, 0.6], 2),
    "input": lambda: otlp.IID(Q, 0),
    "solver": lambda: otlp.solve(SMALL["iid"], "nobody"),
    "problem": lambda: otlp.solve(SMALL["iid"], "greedy"),
    "capture": lambda: otlp.captures.load("/nowhere"),
    "row": lambda: otlp.captures.builtin()[1000],
    "solve": lambda: otlp.solve(SMALL["iid"], "global-resolution", limits={1: 1}, tau=1e-12),
    "size": lambda: otlp.IID([0.01] * 100, 10).enumerate_tuples(),
    "token": lambda: SMALL["iid"].check_draft_tokens([0, 1, 7]),
}


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_every_error_comes_back_from_a_worker(name: str) -> None:
    """Once imported, Dask transfers errors with `__new__` and their attributes."""
    with suppress(ImportError):
        import distributed  # noqa: F401
    error = getattr(errors, name)(*((3, 2) if name == "TooFewTokensError" else ("why",)))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("call", RAISING.values(), ids=RAISING)
def test_errors(call: Callable[[], Any], again: Callable[[Any], Any]) -> None:
    with pytest.raises(errors.OTLPError) as raised:
        call()
    other = again(raised.value)
    assert type(other) is type(raised.value) and str(other) == str(raised.value)
