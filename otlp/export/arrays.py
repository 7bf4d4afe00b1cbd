"""Linear program of a problem as arrays, in the convention of `scipy.optimize.linprog`.

The solver `linear-program` passes the same program to HiGHS; the names of rows and variables are
added here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from otlp._solve import optimal_acceptance
from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.data.whole_file import whole_file
from otlp.distribution import FloatArray, IntArray
from otlp.problem import Problem, check_problem
from otlp.reductions.transport_program import TransportProgram
from otlp.solvers.linear_program import LinearProgram

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BYTES_PER_VARIABLE = 420.0
"""Peak memory of arrays, names and written files per variable, in bytes."""

MAX_NAME_LENGTH = 200
"""Maximum length of a row name; a variable name adds a token and must not exceed 255, as in MPS."""


@dataclass(frozen=True, eq=False)
class LPArrays:
    """Program: minimise c @ x subject to the bounds, A_ub @ x <= b_ub and A_eq @ x == b_eq.

    Attributes
    ----------
    form : str
        "relaxed" or "full"; see `lp_arrays`.
    c : ndarray, shape (m,)
        Minus one for each variable that accepts a drafted token, so the minimum is minus the
        acceptance.
    A_ub, A_eq : scipy.sparse.csr_array, shapes (r, m) and (s, m)
    b_ub, b_eq : ndarray, shapes (r,) and (s,)
    bounds : ndarray, shape (m, 2)
        From 0 to infinity.
    variables : tuple of str
        Names such as ``"x_7_set_3_7"``, the accepted mass of token 7 if exactly the tokens 3 and 7
        were drafted.
    rows_ub, rows_eq : tuple of str
        Names such as ``"token_7"``, ``"set_3_7"`` and ``"tuple_7_3"``; ``"token_rest"`` represents
        all tokens that are never drafted.
    optimum : float
        The optimal acceptance from `otlp.optimal_acceptance`, which does not use this program.

    Examples
    --------
    >>> import otlp
    >>> from otlp.export import lp_arrays
    >>> lp = lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    >>> lp.A_ub.shape, lp.variables
    ((5, 4), ('x_0_set_0', 'x_1_set_1', 'x_0_set_0_1', 'x_1_set_0_1'))
    >>> round(lp.optimum, 6)
    0.69
    """

    form: str
    c: FloatArray
    A_ub: csr_array
    b_ub: FloatArray
    A_eq: csr_array
    b_eq: FloatArray
    bounds: FloatArray
    variables: tuple[str, ...]
    rows_ub: tuple[str, ...]
    rows_eq: tuple[str, ...]
    optimum: float


def lp_arrays(
    problem: Problem, form: str = "relaxed", memory_limit: int = MEMORY_LIMIT
) -> LPArrays:
    """Return the linear program of a problem as arrays.

    Parameters
    ----------
    problem : Problem
    form : str
        "relaxed" for Eq. 2 of Global Resolution, with one group of variables for each set of
        drafted tokens, and inequalities only.  "full" for Eq. 1, the joint distribution of token
        and tuple, with an equation for each tuple and an upper bound for each token.  Since tuples
        and tokens have the same total mass, the upper bounds hold with equality.  Each bound is the
        target plus 1e-12, so that rounding does not make the program infeasible.
    memory_limit : int
        Maximum size of the program, in bytes.

    Returns
    -------
    LPArrays

    Raises
    ------
    InvalidInputError
        If `problem` is not a Problem, or an option is out of range; for an unknown form, the
        message suggests the nearest name.
    SizeLimitError
        If the program would need more than `memory_limit`.

    Notes
    -----
    Masses of tokens, sets and tuples can be far below 1e-6 or 1e-7, the usual feasibility tolerance
    of solvers.  With this tolerance a solver can return more than the optimum, or report
    infeasibility; set the tolerance to 1e-9 or less.

    Examples
    --------
    >>> import otlp
    >>> from otlp.export import lp_arrays
    >>> from scipy.optimize import linprog
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> lp = lp_arrays(problem)
    >>> lp.variables[:5]
    ('x_0_set_0', 'x_1_set_1', 'x_2_set_2', 'x_0_set_0_1', 'x_1_set_0_1')
    >>> found = linprog(lp.c, lp.A_ub, lp.b_ub, lp.A_eq, lp.b_eq, lp.bounds)
    >>> round(-found.fun, 9), round(lp.optimum, 9)
    (0.85, 0.85)
    """
    check_problem(problem)
    solver = LinearProgram(form, memory_limit)
    count = solver.variables(problem)
    what = f"the {form} linear program of {count:,.0f} variables"
    check_memory(what, BYTES_PER_VARIABLE * count, memory_limit)
    program, (kept, listed, *_) = solver.reduction.reduce(problem)
    tokens = [*map(str, kept.tokens.tolist()), "rest"]
    by_token = tuple(f"token_{token}" for token in tokens[: program.row_mass.size])
    if form == "full":
        by_group = _group_names("tuple", list(listed.tuples.tokens), tokens)
    else:
        sets = np.split(listed.sets.members, listed.sets.offsets[1:-1])
        by_group = _group_names("set", sets, tokens)
    variables = tuple(
        f"x_{tokens[row]}_{by_group[column]}"
        for row, column in zip(program.rows.tolist(), program.columns.tolist(), strict=True)
    )
    names, limits = by_token + by_group, np.concatenate((program.row_mass, program.column_mass))
    matrix = _incidence_matrix(program)
    inequalities = program.row_mass.size if program.exact else limits.size
    return LPArrays(
        form=form,
        c=-program.reward,
        A_ub=matrix[:inequalities],
        b_ub=limits[:inequalities],
        A_eq=matrix[inequalities:],
        b_eq=limits[inequalities:],
        bounds=np.tile([0.0, np.inf], (len(variables), 1)),
        variables=variables,
        rows_ub=names[:inequalities],
        rows_eq=names[inequalities:],
        optimum=optimal_acceptance(problem),
    )


def _incidence_matrix(program: TransportProgram) -> csr_array:
    """Return the matrix; a column has a one in the row of its token and in the row of its group."""
    from scipy.sparse import csr_array

    count, size = program.reward.size, program.row_mass.size
    rows = np.concatenate((program.rows, size + program.columns))
    entries = np.ones(rows.size), (rows, np.tile(np.arange(count), 2))
    return csr_array(entries, shape=(size + program.column_mass.size, count))


def _group_names(kind: str, groups: Sequence[IntArray], tokens: list[str]) -> tuple[str, ...]:
    """Return names from the tokens of each group, or from its number if a name is too long."""
    names = tuple("_".join([kind, *(tokens[i] for i in group.tolist())]) for group in groups)
    if max(map(len, names)) > MAX_NAME_LENGTH:
        return tuple(f"{kind}_number_{j}" for j in range(len(groups)))
    return names


def write_arrays(lp: LPArrays, path: str | os.PathLike[str]) -> None:
    """Write the arrays to a NumPy file, ``.npz``, atomically and without pickles.

    A sparse array such as `A_ub` is stored as ``A_ub_data``, ``A_ub_indices``, ``A_ub_indptr`` and
    ``A_ub_shape``; all other arrays are stored under their own names.

    Parameters
    ----------
    lp : LPArrays
    path : path

    Raises
    ------
    OSError
        If the file cannot be written.

    Notes
    -----
    To read ``A_ub`` again:

        stored = numpy.load("problem.npz")
        parts = stored["A_ub_data"], stored["A_ub_indices"], stored["A_ub_indptr"]
        A_ub = scipy.sparse.csr_array(parts, shape=stored["A_ub_shape"])

    Examples
    --------
    >>> import os, tempfile, numpy as np, otlp
    >>> from otlp.export import lp_arrays, write_arrays
    >>> lp = lp_arrays(otlp.Problem([0.5, 0.5], otlp.IID([0.9, 0.1], n=2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "problem.npz")
    >>> write_arrays(lp, path)
    >>> np.load(path)["c"].tolist()
    [-1.0, -1.0, -1.0, -1.0]
    """
    stored: dict[str, Any] = {}
    for name, value in vars(lp).items():
        if name in ("A_ub", "A_eq"):
            for part in ("data", "indices", "indptr", "shape"):
                stored[f"{name}_{part}"] = getattr(value, part)
        else:
            stored[name] = np.asarray(value, dtype=str if isinstance(value, tuple) else None)
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **stored)
