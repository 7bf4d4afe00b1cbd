"""Solvers by name: the table, and the way from a name and options to a solver."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.solvers.auto import Auto
from otlp.solvers.global_resolution.global_resolution import GlobalResolution
from otlp.solvers.greedy import GreedySolver
from otlp.solvers.hub import HubSolver
from otlp.solvers.k_seq import KSeq
from otlp.solvers.linear_program import LinearProgram
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.naive import Naive
from otlp.solvers.orderings import Orderings
from otlp.solvers.recursive_rejection import RecursiveRejection
from otlp.solvers.slackness import Slackness
from otlp.solvers.solver import Solver
from otlp.solvers.speculative_sampling import SpeculativeSampling

__all__ = ["SOLVERS", "make_solver", "with_time_limit"]

SOLVERS: Mapping[str, type[Solver]] = {
    solver.name: solver
    for solver in (
        Auto,
        LinearProgram,
        MaxFlow,
        Slackness,
        GlobalResolution,
        Martingale,
        Orderings,
        GreedySolver,
        HubSolver,
        SpeculativeSampling,
        KSeq,
        RecursiveRejection,
        Naive,
    )
}


def make_solver(solver: str | Solver, **options: Any) -> Solver:
    """Look up a solver by name and set its options.

    Raises
    ------
    UnknownSolverError, InvalidInputError
        See `solve`.
    """
    if isinstance(solver, Solver):
        if options:
            raise InvalidInputError(
                f"options {sorted(options)} were passed beside a solver object: set them on the "
                f"object, as in {type(solver).__name__}(...)"
            )
        return solver
    if solver not in SOLVERS:
        near = get_close_matches(str(solver), SOLVERS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownSolverError(
            f"no solver is named {solver!r}: {hint}known: {', '.join(SOLVERS)}"
        )
    kind = SOLVERS[solver]
    fields = getattr(kind, "__dataclass_fields__", {})
    unknown = sorted(set(options) - set(fields))
    if unknown:
        known = ", ".join(fields) or "none"
        raise InvalidInputError(f"{solver} has no option {unknown[0]!r}: its options are {known}")
    return kind(**options)


def with_time_limit(name: str, seconds: float) -> Solver:
    """Look up a solver by name and limit its time, where it has such an option."""
    solver = make_solver(name)
    limited = "time_limit" in getattr(solver, "__dataclass_fields__", {})
    return make_solver(name, time_limit=seconds) if limited else solver
