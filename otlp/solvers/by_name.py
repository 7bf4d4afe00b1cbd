"""From a name and options to a solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypedDict

from otlp.checks import nearest
from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.solvers.flow_solver import FlowSolver
from otlp.solvers.synonyms import solver_name
from otlp.solvers.table import SOLVERS, Solver, SolverName


class Options(TypedDict, total=False):
    """What the named solvers take as options, all together, for editors and type checkers.

    Which solver takes which says its own page; `make_solver` refuses the others by name.
    """

    engine: str
    fallback: Solver | SolverName | None
    form: str
    gap: float
    limits: Mapping[int, int] | None
    max_iterations: int
    max_sequences: float
    memory_limit: int
    newton_steps: int
    plan: str
    rho: float | None
    samples: int
    seed: int
    tau: float
    time_limit: float | None


def make_solver(solver: str | Solver, /, **options: Any) -> Solver:
    """Look up a solver by name and set its options; a fallback may be given by its name too.

    Raises
    ------
    UnknownSolverError, InvalidInputError
        See `solve`.

    Examples
    --------
    >>> from otlp.solvers import make_solver
    >>> make_solver("max-flow", time_limit=5.0).name
    'max-flow'
    """
    if isinstance(solver, Solver):
        if options:
            raise InvalidInputError(
                f"options {sorted(options)} were passed beside a solver object: set them on the "
                f"object, as in {type(solver).__name__}(...)"
            )
        return solver
    if isinstance(solver, type) and issubclass(solver, Solver):
        raise UnknownSolverError(
            f"{solver.__name__} is a class: make a solver of it, {solver.__name__}(), or give its "
            f"name; known: {', '.join(SOLVERS)}"
        )
    if not isinstance(solver, str):
        raise UnknownSolverError(
            f"solver is a {type(solver).__name__}: it must be a name or a solver object; "
            f"known: {', '.join(SOLVERS)}"
        )
    kind = SOLVERS.get(solver) or SOLVERS.get(solver_name(solver))
    if kind is None:
        raise UnknownSolverError(f"no solver is named {solver!r}: {nearest(solver, SOLVERS)}")
    if not options:
        return kind()
    known = option_names(kind)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{solver} has no option {unknown[0]!r}: its options are {', '.join(known) or 'none'}"
        )
    if isinstance(options.get("fallback"), str):
        options["fallback"] = make_solver(options["fallback"])
    return kind(**options)


def with_time_limit(name: str, seconds: float) -> Solver:
    """Look up a solver by name and limit its time, where it has such an option.

    Examples
    --------
    >>> from otlp.solvers import with_time_limit
    >>> with_time_limit("linear-program", 5.0).time_limit
    5.0
    """
    name = solver_name(name)
    limited = name in SOLVERS and "time_limit" in option_names(SOLVERS[name])
    return make_solver(name, time_limit=seconds) if limited else make_solver(name)


def line_up(names: Sequence[str], seconds: float, engines: Sequence[str] = ()) -> dict[str, Solver]:
    """Look up solvers, as `with_time_limit` does, those of maximum flows once an engine.

    Raises
    ------
    InvalidInputError
        If engines are named, and none of the solvers has one.

    Examples
    --------
    >>> from otlp.solvers import line_up
    >>> list(line_up(["martingale", "max-flow"], 5.0, ["ortools", "graph-tool"]))
    ['martingale', 'max-flow, ortools', 'max-flow, graph-tool']
    """
    found: dict[str, Solver] = {}
    for name in names:
        solver = with_time_limit(name, seconds)
        if isinstance(solver, FlowSolver) and engines:
            found |= {f"{name}, {engine}": replace(solver, engine=engine) for engine in engines}
        else:
            found[name] = solver
    if engines and not any(isinstance(solver, FlowSolver) for solver in found.values()):
        raise InvalidInputError(
            f"engine is {', '.join(engines)}, and of {', '.join(names)} none has one: max-flow and "
            "slackness do"
        )
    return found


def option_names(kind: type[Solver]) -> list[str]:
    """Names of the options of a kind of solver."""
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []
