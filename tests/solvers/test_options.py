"""Every option of every solver refuses what it cannot mean, by name and in plain words."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest

import otlp
from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.solvers import SOLVERS, make_solver
from otlp.solvers.by_name import option_names

OPTIONS = [(name, option) for name, kind in SOLVERS.items() for option in option_names(kind)]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
@pytest.mark.parametrize(
    "value",
    ["abc", [1], float("nan"), True, 1j, object()],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_the_wrong_type_is_invalid_input(name: str, option: str, value: object) -> None:
    with pytest.raises((InvalidInputError, UnknownSolverError)) as caught:
        make_solver(name, **{option: value})
    assert option in str(caught.value) or "no solver is named" in str(caught.value)


@pytest.mark.parametrize("option", ["name", "answer", "gap2"])
def test_what_is_no_option_is_refused(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"no option {option!r}: its options are gap"):
        make_solver("orderings", **{option: 1})


@pytest.mark.parametrize("solver", [None, 3, [], "orderngs"])
def test_what_is_no_solver_is_refused(solver: object) -> None:
    with pytest.raises(UnknownSolverError, match="known: auto"):
        make_solver(solver)  # type: ignore[arg-type]


def test_the_defaults_are_valid() -> None:
    for name, kind in SOLVERS.items():
        if is_dataclass(kind):
            given = {field.name: field.default for field in fields(kind)}
            assert make_solver(name, **given) == make_solver(name)


def test_a_class_is_told_from_a_solver_and_a_draft_from_a_name() -> None:
    problem = otlp.Problem([0.1, 0.9], otlp.IID([0.5, 0.5], 2))
    with pytest.raises(UnknownSolverError, match=r"make a solver of it, KSeq\(\)"):
        otlp.solve(problem, otlp.solvers.KSeq)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"it must be an otlp.Problem, such as"):
        otlp.solve([0.1, 0.9], [0.5, 0.5])  # type: ignore[arg-type]
