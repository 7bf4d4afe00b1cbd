"""The functions `solve` and `optimal_acceptance`."""

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


def solve(  # type: ignore[misc]  # The second positional argument may be a solver.
    problem: Any,
    draft: Any = None,
    *,
    n: int | None = None,
    solver: Any = None,
    throw: bool = True,
    **options: Any,
) -> Solution:
    """Solve an OTLP and certify the solution.

    ``solve(problem)`` accepts a `Problem`; the short form ``solve(p, q, n=2)`` is equivalent to
    ``solve(Problem(p, IID(q, n=2)))``.

    Parameters
    ----------
    problem : Problem, or array_like of shape (V,)
        The problem, or the target p in the short form.
    draft : array_like, shape (V,)
        The draft q in the short form.  With a `Problem`, this argument may be the solver.
    n : int
        Number of i.i.d. drafts in the short form.
    solver : str or Solver
        A name from `otlp.solvers.SOLVERS`, or a solver object; `make_solver` creates one from a
        name that is known only at run time.  Default ``"auto"``, the fastest exact solver for the
        draft scheme.
    throw : bool
        Whether to raise `SolveError` if the solver found no plan or the verifier could not confirm
        its claim.  If False, return the solution, whose status contains the reason.
    **options
        Options of the named solver.

    Returns
    -------
    Solution
        Plan and certificate.

    Raises
    ------
    UnknownSolverError
        If no solver has this name; the message suggests the most similar name.
    InvalidInputError
        If `problem` is not a `Problem`, the arguments are ambiguous, the solver has no such
        option, or an option is out of range.
    UnsupportedProblemError
        If the solver does not support this problem; the message names a solver that does.
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
        problem, solver = _parse(problem, draft, n, solver)
    solver = "auto" if solver is None else solver
    if not isinstance(throw, bool):
        raise InvalidInputError(f"throw must be True or False, got {throw!r:.60}")
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


def _parse(problem: Any, draft: Any, n: int | None, solver: Any) -> tuple[Any, Any]:
    """Return the problem and the solver from the arguments of either form."""
    if isinstance(problem, Problem) or isinstance(draft, str | Solver):
        return _long_form(problem, draft, n, solver)
    if isinstance(draft, Problem):  # The arguments are swapped, so report the first one.
        check_problem(problem)
    return problem if draft is None and n is None else _short_form(problem, draft, n), solver


def _long_form(problem: Problem, second: Any, n: int | None, solver: Any) -> tuple[Problem, Any]:
    """Return the problem and its solver, which may be the second argument."""
    if n is not None:
        raise InvalidInputError(
            "n must be omitted if the first argument is a Problem or the second is a solver, got "
            f"{n!r:.60}; use solve(p, q, n=2, solver=...) or solve(problem, solver)"
        )
    if second is not None and not isinstance(second, str | Solver | type):
        raise InvalidInputError(
            f"draft must be omitted with a Problem, which contains its drafts, got {second!r:.60}"
        )
    if second is not None and solver is not None:
        raise InvalidInputError(f"solver must be given once, got {second!r:.60} and {solver!r:.60}")
    return problem, solver if second is None else second


def _short_form(target: Any, draft: Any, n: int | None) -> Problem:
    """Return the problem with n i.i.d. drafts; raise InvalidInputError if ambiguous."""
    if isinstance(draft, DraftScheme):
        raise InvalidInputError(
            f"q must be an array of shape (V,), got {draft!r:.60}; use "
            "solve(Problem(p, drafts)) for a draft scheme"
        )
    if n is None or draft is None:
        raise InvalidInputError(
            f"{'n' if n is None else 'q'} must be given in the short form; use solve(p, q, n=2) "
            "for two drafts drawn independently from q"
        )
    for name, values in (("p", target), ("q", draft)):
        shape = as_array(values, name).shape
        if len(shape) != 1:
            more = (
                "; use solve(Problem(p, Independent(drafts))) for different drafts, and "
                "solve_many for many problems"
            )
            raise InvalidInputError(
                f"{name} must have shape (V,), got {shape}{more if len(shape) == 2 else ''}"
            )
    return Problem(target, IID(draft, n))


@own_float_errors
def optimal_acceptance(problem: Problem) -> float:
    """Compute the optimal acceptance alpha* without a plan.

    `otlp.reductions.subset_selection.subset_selection` also returns the subset H* that proves it.

    Returns
    -------
    float
        Optimal acceptance, between 0 and 1.

    Raises
    ------
    InvalidInputError
        If `problem` is not a `Problem`.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.optimal_acceptance(problem), 6)
    0.85
    """
    check_problem(problem)
    return subset_selection(problem)[0]
