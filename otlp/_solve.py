"""One way in: name a solver, or let `auto` choose, and get a certified solution."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy.typing as npt

from otlp.checks import as_array, own_float_errors
from otlp.drafts import IID, DraftScheme
from otlp.errors import InvalidInputError, UnknownSolverError
from otlp.problem import Problem, check_problem
from otlp.reductions.subset_selection import subset_selection
from otlp.solution import Solution, SolveError, Status
from otlp.solvers.by_name import Options, make_solver
from otlp.solvers.solver import Solver
from otlp.solvers.table import SolverName


@overload
def solve(
    problem: Problem,
    solver: SolverName | Solver = "auto",
    *,
    throw: bool = True,
    **options: Unpack[Options],
) -> Solution: ...


@overload
def solve(
    problem: npt.ArrayLike,
    draft: npt.ArrayLike,
    *,
    n: int,
    solver: SolverName | Solver = "auto",
    throw: bool = True,
    **options: Unpack[Options],
) -> Solution: ...


def solve(  # type: ignore[misc]  # a solver may stand in the second place, without its name
    problem: Any,
    draft: Any = None,
    *,
    n: int | None = None,
    solver: Any = None,
    throw: bool = True,
    **options: Any,
) -> Solution:
    """Solve an OTLP and certify the answer.

    ``solve(problem)`` takes a `Problem`; ``solve(p, q, n=2)`` is short for
    ``solve(Problem(p, IID(q, n=2)))``.

    Parameters
    ----------
    problem : Problem, or array_like of shape (V,)
        Target and drafts, or in the short form the target p.
    draft : array_like, shape (V,)
        In the short form the draft q.  With a `Problem` the solver may stand here.
    n : int
        In the short form the number of i.i.d. drafts.
    solver : str or Solver
        A name from `otlp.solvers.SOLVERS`, or a solver object, such as `make_solver` makes of a
        name that is known at run time only.  By default `auto`, which takes the fastest exact
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
        If it is no problem, the short form may mean something else, the solver has no such option,
        or an option is out of range.
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
    >>> round(otlp.solve([0.1, 0.6, 0.3], [0.5, 0.3, 0.2], n=2, solver="k-seq").acceptance, 6)
    0.815037
    """
    if not isinstance(problem, Problem) or draft is not None or n is not None:
        problem, solver = _read(problem, draft, n, solver)
    solver = "auto" if solver is None else solver
    if not isinstance(throw, bool):
        raise InvalidInputError(f"throw is a {type(throw).__name__}: it must be True or False")
    try:
        chosen = make_solver(solver, **options)
    except UnknownSolverError:
        check_problem(problem)
        raise
    solution = chosen.solve(problem)
    failed = solution.plan is None or solution.status is Status.CERTIFICATE_FAILED
    if throw and failed:
        raise SolveError(solution)
    return solution


def _read(problem: Any, draft: Any, n: int | None, solver: Any) -> tuple[Any, Any]:
    """The problem and the solver, however they are written."""
    if isinstance(problem, Problem) or isinstance(draft, str | Solver):
        return _whole(problem, draft, n, solver)
    if isinstance(draft, Problem):  # the arguments stand in each other's place
        check_problem(problem)
    return problem if draft is None and n is None else _short(problem, draft, n), solver


def _whole(problem: Problem, second: Any, n: int | None, solver: Any) -> tuple[Problem, Any]:
    """The problem and its solver, which may be the second argument."""
    if n is not None:
        raise InvalidInputError(
            f"n must be left out with a Problem or a solver in the second place, got {n!r:.60}: "
            "write solve(p, q, n=2, solver=...), or solve(problem, solver)"
        )
    if second is not None and not isinstance(second, str | Solver | type):
        raise InvalidInputError(
            f"draft must be left out with a Problem, which has its drafts, got {second!r:.60}"
        )
    if second is not None and solver is not None:
        raise InvalidInputError(f"solver must be given once, got {second!r:.60} and {solver!r:.60}")
    return problem, solver if second is None else second


def _short(target: Any, draft: Any, n: int | None) -> Problem:
    """The problem of n i.i.d. drafts; what could be read in two ways is refused."""
    if isinstance(draft, DraftScheme):
        raise InvalidInputError(
            f"q must be an array of shape (V,), got {draft!r:.60}: write "
            "solve(Problem(p, drafts)) for a draft scheme"
        )
    if n is None or draft is None:
        raise InvalidInputError(
            f"{'n' if n is None else 'q'} must be given in the short form: write solve(p, q, n=2), "
            "for two drafts drawn independently from q"
        )
    for name, values in (("p", target), ("q", draft)):
        shape = as_array(values, name).shape
        if len(shape) != 1:
            more = (
                ": write solve(Problem(p, Independent(drafts))) for different drafts, and "
                "solve_many for many problems"
            )
            raise InvalidInputError(
                f"{name} must have shape (V,), got {shape}{more if len(shape) == 2 else ''}"
            )
    return Problem(target, IID(draft, n))


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
