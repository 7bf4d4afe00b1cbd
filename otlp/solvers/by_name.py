"""Construction of solvers from names and options."""

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
    """Options of all named solvers, for editors and type checkers.

    `make_solver` raises InvalidInputError for an option that the named solver does not have.
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
    """Create a solver by name and options; the option `fallback` may also be a name.

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
                f"options must be set on the solver object, as in {type(solver).__name__}(...); "
                f"got {sorted(options)}"
            )
        return solver
    if isinstance(solver, type) and issubclass(solver, Solver):
        raise UnknownSolverError(
            f"solver must be an instance, such as {solver.__name__}(), or a name, got the class "
            f"{solver.__name__}; known: {', '.join(SOLVERS)}"
        )
    if not isinstance(solver, str):
        raise UnknownSolverError(
            f"solver must be a name or a solver object, got {type(solver).__name__}; "
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
            f"{solver} has no option {unknown[0]!r}; its options are {', '.join(known) or 'none'}"
        )
    if isinstance(options.get("fallback"), str):
        options["fallback"] = make_solver(options["fallback"])
    return kind(**options)


def with_time_limit(name: str, seconds: float) -> Solver:
    """Create a solver by name and set its time limit, if it has this option.

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
    """Create solvers with `with_time_limit`; create maximum-flow solvers once per engine.

    Raises
    ------
    InvalidInputError
        If `engines` is not empty and none of the solvers has an engine.

    Examples
    --------
    >>> from otlp.solvers import line_up
    >>> list(line_up(["martingale", "max-flow"], 5.0, ["ortools", "graph-tool"]))
    ['martingale', 'max-flow, ortools', 'max-flow, graph-tool']
    """
    solvers: dict[str, Solver] = {}
    for name in names:
        solver = with_time_limit(name, seconds)
        if isinstance(solver, FlowSolver) and engines:
            solvers |= {f"{name}, {engine}": replace(solver, engine=engine) for engine in engines}
        else:
            solvers[name] = solver
    if engines and not any(isinstance(solver, FlowSolver) for solver in solvers.values()):
        raise InvalidInputError(
            f"engine must be omitted unless a solver has engines (max-flow and slackness do), got "
            f"{', '.join(engines)} for {', '.join(names)}"
        )
    return solvers


def option_names(kind: type[Solver]) -> list[str]:
    """Return the names of the options of a solver class."""
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []
