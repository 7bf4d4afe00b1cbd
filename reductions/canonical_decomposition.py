"""Canonical decomposition: importance sampling, then single-draft speculative sampling.

Select a drafted token i by weights beta(i | tuple), then accept it with probability
min(1, p_i / y_i), where y_i is the mass selected (Khisti et al. 2025).  The best weights are a
relaxed solution S with its groups normalised, and back (Global Resolution, Theorem 4.1).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import scipy

from otlp.distribution import FloatArray, sum_by
from otlp.errors import EngineNotFoundError, InvalidInputError
from otlp.reductions.relaxation import RelaxedOTLP


def weights_from_solution(problem: RelaxedOTLP, solution: FloatArray) -> FloatArray:
    """Importance weights beta from a relaxed solution S (Theorem 4.1, Eq. 5).

    Parameters
    ----------
    problem : RelaxedOTLP
        Over tuples, or over sets of tokens.
    solution : ndarray, shape (nnz,)
        S, one number a member of a group.

    Returns
    -------
    ndarray, shape (nnz,)
        Each group's S normalised; uniform over the members of a group that gives nothing.  Their
        objective (`accepted_mass`) is at least the sum of S, so optimal where S is.
    """
    groups = problem.groups
    share = np.maximum(solution, 0.0) / groups.mass[groups.rows]
    total = sum_by(groups.rows, share, len(groups))[groups.rows]
    uniform = 1.0 / np.diff(groups.offsets)[groups.rows]
    # Normalised as shares of the group, not as masses, which may be subnormal.
    return np.divide(share, total, out=uniform, where=total > 0.0)


def solution_from_weights(problem: RelaxedOTLP, weights: FloatArray) -> FloatArray:
    """A relaxed solution S from importance weights beta: accept what was selected, at most p.

    Parameters
    ----------
    problem : RelaxedOTLP
    weights : ndarray, shape (nnz,)
        beta; each group's sum to 1.

    Returns
    -------
    ndarray, shape (nnz,)
        S(i, group) = beta(i | group) mass(group) min(1, p_i / y_i): feasible, and of value
        `accepted_mass`, so optimal where beta is.
    """
    groups, target = problem.groups, problem.target
    selected = selected_mass(problem, weights)
    accept = np.divide(target, selected, out=np.ones(target.size), where=selected > target)
    return weights * groups.mass[groups.rows] * accept[groups.members]


def selected_mass(problem: RelaxedOTLP, weights: FloatArray) -> FloatArray:
    """Law y of the selected token under importance weights, shape (V,)."""
    groups = problem.groups
    return sum_by(groups.members, weights * groups.mass[groups.rows], problem.target.size)


def accepted_mass(problem: RelaxedOTLP, weights: FloatArray) -> float:
    """Objective of the beta-problem (Theorem B.1, Eq. 19): sum of min(p_i, y_i)."""
    return float(np.minimum(problem.target, selected_mass(problem, weights)).sum())


def best_weights(problem: RelaxedOTLP, solver: str = "CLARABEL") -> FloatArray:
    """Solve the beta-problem as Theorem B.1 states it, as a reference for small problems.

    Parameters
    ----------
    problem : RelaxedOTLP
    solver : str
        A solver that cvxpy knows.

    Returns
    -------
    ndarray, shape (nnz,)
        Optimal importance weights, to the solver's tolerance; cleaned to nonnegative weights
        that sum to one in each group.

    Raises
    ------
    EngineNotFoundError
        If cvxpy is not installed.
    InvalidInputError
        If cvxpy does not reach an optimum.

    Notes
    -----
    A concave objective over nnz variables and m equalities: for nnz of a few thousand at most.
    """
    try:
        cvxpy: Any = import_module("cvxpy")
    except ImportError as error:
        raise EngineNotFoundError(
            "the beta-problem needs cvxpy: pip install -e '.[cvxpy]'"
        ) from error
    groups = problem.groups
    columns = np.arange(groups.members.size)
    weights = cvxpy.Variable(columns.size, nonneg=True)
    mass = groups.mass[groups.rows]
    to_tokens = scipy.sparse.csr_array(
        (mass, (groups.members, columns)), shape=(problem.target.size, columns.size)
    )
    to_groups = scipy.sparse.csr_array(
        (np.ones(columns.size), (groups.rows, columns)), shape=(len(groups), columns.size)
    )
    objective = cvxpy.sum(cvxpy.minimum(problem.target, to_tokens @ weights))
    program = cvxpy.Problem(cvxpy.Maximize(objective), [to_groups @ weights == 1.0])
    program.solve(solver=solver)
    if weights.value is None:
        raise InvalidInputError(
            f"cvxpy with {solver} ended with status {program.status!r}: try another solver"
        )
    return weights_from_solution(problem, np.maximum(weights.value, 0.0) * mass)
