"""The OTLP spelt out in CVXPY, constraint by constraint: slow, and there to check the others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from otlp.errors import EngineNotFoundError
from otlp.problem import Problem
from otlp.solvers.limits import check_choice

__all__ = ["cvxpy_optimum"]


def cvxpy_optimum(problem: Problem, form: str = "relaxed", engine: str = "CLARABEL") -> float:
    """Compute the optimal acceptance with CVXPY, without reductions and without a plan.

    Parameters
    ----------
    problem : Problem
        Small: there are V variables a tuple.
    form : str
        "relaxed" for Eq. 2 of Global Resolution, over tuples, or "full" for Eq. 1.
    engine : str
        A solver that CVXPY knows.  The default is no relative of HiGHS; its answers are good to
        about 1e-8.

    Returns
    -------
    float

    Raises
    ------
    EngineNotFoundError
        If CVXPY is not installed.
    InvalidInputError
        If `form` is unknown.
    SizeLimitError
        If there are too many tuples to list.
    RuntimeError
        If the engine does not report an optimum.
    """
    check_choice("form", form, ("relaxed", "full"))
    try:
        cvxpy: Any = import_module("cvxpy")
    except ImportError as error:
        raise EngineNotFoundError(
            f'CVXPY cannot be loaded ({error}): `pip install "otlp[cvxpy]"`'
        ) from error
    tuples = problem.drafts.enumerate_tuples()
    drafted = np.zeros((problem.vocab_size, tuples.mass.size))
    np.put_along_axis(drafted, tuples.tokens.T, 1.0, axis=0)
    joint = cvxpy.Variable(drafted.shape, nonneg=True)
    by_token, by_tuple = cvxpy.sum(joint, axis=1), cvxpy.sum(joint, axis=0)
    if form == "full":
        constraints = [by_token == problem.target, by_tuple == tuples.mass]
    else:
        constraints = [
            by_token <= problem.target,
            by_tuple <= tuples.mass,
            cvxpy.multiply(1.0 - drafted, joint) == 0.0,
        ]
    accepted = cvxpy.sum(cvxpy.multiply(drafted, joint))
    program = cvxpy.Problem(cvxpy.Maximize(accepted), constraints)
    program.solve(solver=engine)
    if program.status != cvxpy.OPTIMAL:
        raise RuntimeError(f"CVXPY with {engine} ended with status {program.status}")
    return float(program.value)
