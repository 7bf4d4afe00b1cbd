"""Every option of every solver refuses invalid values, by name and in plain words."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

import otlp
from otlp.errors import InvalidInputError, UnknownSolverError, UnsupportedProblemError
from otlp.solvers import SOLVERS, LinearProgram, MaxFlow, Slackness, Solver, make_solver
from otlp.solvers.by_name import option_names
from tests.instances import large

OPTIONS = [(name, option) for name, kind in SOLVERS.items() for option in option_names(kind)]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
@pytest.mark.parametrize(
    "value", ["abc", [1], float("nan"), True, 1j, object()], ids=lambda value: type(value).__name__
)
def test_a_value_of_the_wrong_type_is_invalid_input(name: str, option: str, value: object) -> None:
    with pytest.raises((InvalidInputError, UnknownSolverError)) as caught:
        make_solver(name, **{option: value})
    printed = str(caught.value)
    refused = printed.startswith(f"{option} must be ") and f"got {repr(value)[:13]}" in printed
    assert refused or "no solver is named 'abc'" in printed


OUT_OF_RANGE: list[tuple[str, dict[str, object], str]] = [
    ("linear-program", {"form": "relaxd"}, "did you mean 'relaxed'"),
    ("linear-program", {"time_limit": 0.0}, "time_limit must be .*, got 0.0"),
    ("linear-program", {"memory_limit": -1}, "memory_limit must be .*, got -1"),
    ("linear-program", {"memory_limit": None}, "memory_limit must be .*, got None"),
    ("linear-program", {"memory_limit": "2GB"}, "memory_limit must be .*, got '2GB'"),
    ("linear-program", {"form": 3}, "form must be .*, got 3"),
    ("max-flow", {"engine": "graphtool"}, "did you mean 'graph-tool'"),
    ("max-flow", {"time_limit": -1.0}, "time_limit must be .*, got -1.0"),
    ("max-flow", {"memory_limit": 0}, "memory_limit must be .*, got 0"),
    ("max-flow", {"memory_limit": None}, "memory_limit must be .*, got None"),
    ("slackness", {"engine": "or-tools"}, "did you mean 'ortools'"),
    ("slackness", {"time_limit": 0.0}, "time_limit"),
    ("orderings", {"gap": -1.0}, "gap must be .*, got -1"),
    ("orderings", {"max_iterations": 0}, "max_iterations must be .*, got 0"),
    ("orderings", {"time_limit": 0.0}, "time_limit must be .*, got 0"),
    ("random-ranks", {"gap": -1.0}, "gap"),
    ("random-ranks", {"max_iterations": 0}, "max_iterations"),
    ("random-weights", {"gap": -1.0}, "gap"),
    ("random-weights", {"max_iterations": 0}, "max_iterations"),
    *(("k-seq", {"rho": rho}, "rho") for rho in (0.5, float("inf"), -1.0)),
    ("recursive-rejection", {"max_sequences": 0}, "max_sequences"),
    ("recursive-rejection", {"samples": 1}, "samples"),
    ("recursive-rejection", {"samples": 1.5}, "samples"),
    ("recursive-rejection", {"seed": -1}, "seed"),
    *(("global-resolution", {"tau": tau}, "tau") for tau in (0.0, 1.0, -1e-3)),
    ("global-resolution", {"tau": None}, "tau must be .*, got None"),
    ("global-resolution", {"plan": "exact"}, "one of lossless, published, got 'exact'"),
    ("global-resolution", {"plan": 3}, "plan must be .*, got 3"),
    ("global-resolution", {"plan": "lossles"}, "did you mean 'lossless'"),
    ("global-resolution", {"limits": {2: 0}}, r"limits\[2\] must be .*, got 0"),
    ("global-resolution", {"limits": {}}, r"limits must be None .*; got \{\}"),
    ("global-resolution", {"limits": 3}, "limits must be .*; got 3"),
    ("global-resolution", {"limits": {2: "x"}}, r"limits\[2\] must be .*, got 'x'"),
    ("global-resolution", {"limits": {"a": 2}}, "each n of limits must be .*, got 'a'"),
    ("global-resolution", {"max_iterations": -1}, "max_iterations"),
    ("global-resolution", {"newton_steps": -1}, "newton_steps"),
    ("global-resolution", {"newton_steps": 1.5}, "newton_steps must be .*, got 1.5"),
    ("global-resolution", {"max_iterations": 0, "newton_steps": 0}, "positive, got 0 and 0"),
]


@pytest.mark.parametrize(("name", "options", "words"), OUT_OF_RANGE)
def test_options_out_of_range_are_named(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make_solver(name, **options)


def test_a_fallback_is_a_solver_and_not_a_name() -> None:
    with pytest.raises(InvalidInputError, match=r"otlp\.solvers\.MaxFlow\(\)"):
        otlp.solvers.GlobalResolution(fallback="max-flow")


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (LinearProgram("relaxed", time_limit=1e-6), "HiGHS"),
        (LinearProgram("full", time_limit=1e-6), "HiGHS"),
        (MaxFlow(time_limit=1e-6), "stopped after 1e-06 s"),
        (Slackness(time_limit=1e-6), "stopped after 1e-06 s"),
    ],
)
def test_a_time_limit_is_a_status_and_the_next_solve_works(solver: Solver, words: str) -> None:
    solution = solver.solve(large(28, 2))
    assert solution.status is otlp.Status.TIME_LIMIT
    assert solution.plan is None and solution.guarantee is otlp.Guarantee.NONE
    assert words in solution.message
    later = replace(solver, time_limit=60.0)  # type: ignore[type-var]
    assert later.solve(large(28, 2)).guarantee is otlp.Guarantee.OPTIMAL


def test_an_infinite_time_limit_is_none() -> None:
    solution = MaxFlow(time_limit=float("inf")).solve(large(28, 2))
    assert solution.guarantee is otlp.Guarantee.OPTIMAL


@pytest.mark.parametrize(
    ("solver", "problem", "what"),
    [
        (LinearProgram("relaxed"), large(200, 4), "relaxed linear program"),
        (LinearProgram("full"), large(200, 3), "full linear program"),
        (MaxFlow(), large(1000, 3), "a network of"),
        (Slackness(), large(1000, 4), "network"),
    ],
)
def test_what_is_too_large_is_refused_with_the_way_out(
    solver: Solver, problem: otlp.Problem, what: str
) -> None:
    capability = solver.supports(problem)
    assert not capability and what in capability.reason
    assert "2,048 MiB" in capability.reason and "top_k" in capability.reason
    assert replace(solver, memory_limit=2**60).supports(problem)  # type: ignore[type-var]
    with pytest.raises(UnsupportedProblemError, match=solver.name):
        solver.solve(problem)


@pytest.mark.parametrize("option", ["name", "answer", "gap2"])
def test_what_is_no_option_is_refused(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"no option {option!r}; its options are gap"):
        make_solver("orderings", **{option: 1})


@pytest.mark.parametrize("solver", [None, 3, [], "orderngs", otlp.solvers.KSeq])
def test_what_is_no_solver_is_refused(solver: object) -> None:
    with pytest.raises(UnknownSolverError, match=r"known: auto|an instance, such as KSeq\(\)"):
        make_solver(solver)


def test_the_defaults_are_valid() -> None:
    for name, kind in SOLVERS.items():
        if is_dataclass(kind):
            given = {field.name: field.default for field in fields(kind)}
            assert make_solver(name, **given) == make_solver(name)
