"""One way in: name a solver, or let `auto` choose, and get a certified solution."""

from __future__ import annotations

from typing import Unpack

from otlp.checks import own_float_errors
from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.problem import Problem, check_problem
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Solution, SolveError, Status
from otlp.solvers.by_name import Options, make_solver
from otlp.solvers.solver import Solver
from otlp.solvers.table import SolverName


def solve(
    problem: Problem,
    solver: SolverName | Solver = "auto",
    *,
    throw: bool = True,
    **options: Unpack[Options],
) -> Solution:
    """Solve an OTLP and certify the answer.

    Parameters
    ----------
    problem : Problem
        Target and drafts.
    solver : str or Solver
        A name from `otlp.solvers.SOLVERS`, or a solver object, such as `make_solver` makes of a
        name that is known at run time only.  `auto` takes the fastest exact solver for the draft
        scheme.
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
        If it is no problem, the solver has no such option, or an option is out of range.
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
    if not isinstance(throw, bool):
        raise InvalidInputError(f"throw is a {type(throw).__name__}: it must be True or False")
    try:
        chosen = make_solver(solver, **options)
    except UnknownSolverError:
        check_problem(problem)  # the arguments may stand in each other's place
        raise
    solution = chosen.solve(problem)
    failed = solution.plan is None or solution.status is Status.CERTIFICATE_FAILED
    if throw and failed:
        raise SolveError(solution)
    return solution


@own_float_errors
def optimal_acceptance(problem: Problem) -> float:
    """Compute the optimal acceptance alpha*, without a plan.

    `otlp.reductions.subset_selection.subset_selection` gives the subset H* that proves it, too.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    InvalidInputError
        If it is no problem.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.optimal_acceptance(problem), 6)
    0.85
    """
    check_problem(problem)
    return subset_selection(problem)[0]
