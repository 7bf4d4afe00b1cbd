"""One way in: name a solver, or let `auto` choose, and get a certified solution."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from otlp.distribution import Mask
from otlp.errors import InvalidInputError, SolveError, UnknownSolverError
from otlp.problem import Problem
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Solution, Status
from otlp.solvers import SOLVERS
from otlp.solvers.solver import Solver

__all__ = ["make_solver", "optimal_acceptance", "solve", "with_time_limit"]


def solve(
    problem: Problem, solver: str | Solver = "auto", *, throw: bool = True, **options: Any
) -> Solution:
    """Solve an OTLP and certify the answer.

    Parameters
    ----------
    problem : Problem
        Target and drafts.
    solver : str or Solver
        A name from `otlp.solvers.SOLVERS`, or a solver object.  `auto` takes the fastest exact
        solver for the draft scheme.
    throw : bool
        Raise `SolveError` where the solver found no plan or claimed what the verifier could not
        confirm; with False that solution is returned, and its status says why.
    **options
        Hyperparameters of the named solver.

    Returns
    -------
    Solution
        Plan and certificate.

    Raises
    ------
    UnknownSolverError
        If no solver has this name; suggests the nearest.
    InvalidInputError
        If the solver has no such option, or an option is out of range.
    UnsupportedProblemError
        If the solver does not take this problem; says why, and which does.
    SolveError
        See `throw`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem)
    >>> round(solution.acceptance, 6), solution.guarantee.name
    (0.85, 'OPTIMAL')
    """
    chosen = make_solver(solver, **options)
    solution = chosen.solve(problem)
    failed = solution.plan is None or solution.status is Status.CERTIFICATE_FAILED
    if throw and failed:
        raise SolveError(solution)
    return solution


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


def optimal_acceptance(problem: Problem) -> tuple[float, Mask]:
    """Compute the optimal acceptance alpha* and its proof H*, without a plan.

    See `otlp.reductions.subset_selection`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> alpha, subset = otlp.optimal_acceptance(problem)
    >>> round(alpha, 6), subset.tolist()
    (0.85, [True, False, False])
    """
    return subset_selection(problem)
