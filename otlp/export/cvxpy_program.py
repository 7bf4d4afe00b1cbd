"""The OTLP in CVXPY, constraint by constraint; slow, used to check the other solvers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from otlp.checks import MEMORY_LIMIT, check_choice, check_memory
from otlp.errors import EngineNotFoundError
from otlp.problem import Problem, check_problem

BYTES_PER_VARIABLE = 200.0
"""Approximate bytes of CVXPY's copies of the arrays per variable, before an engine starts."""


def cvxpy_problem(problem: Problem, form: str = "relaxed") -> Any:
    """Return the OTLP as a CVXPY problem, without reductions.

    Parameters
    ----------
    problem : Problem
        A small problem; there are V variables per tuple.
    form : str
        "relaxed" for Eq. 2 of Global Resolution, over tuples, or "full" for Eq. 1.

    Returns
    -------
    cvxpy.Problem
        The only variable is the joint distribution of token and tuple, shape (V, m), with tuples in
        the order of ``problem.drafts.enumerate_tuples()``; the value is the acceptance.

    Raises
    ------
    EngineNotFoundError
        If CVXPY is not installed.
    InvalidInputError
        If `problem` is not a Problem, or `form` is unknown.
    SizeLimitError
        If there are too many tuples to list, or too many variables.

    Examples
    --------
    >>> import otlp
    >>> from otlp.export import cvxpy_problem
    >>> program = cvxpy_problem(otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2)))
    >>> round(float(program.solve()), 4)
    0.85
    """
    check_problem(problem)
    check_choice("form", form, ("relaxed", "full"))
    try:
        cvxpy: Any = import_module("cvxpy")
    except ImportError as error:
        raise EngineNotFoundError(
            f'CVXPY cannot be loaded ({error}): `pip install -e ".[cvxpy]"`'
        ) from error
    tuples = problem.drafts.enumerate_tuples()
    count = tuples.mass.size * problem.vocab_size
    check_memory(
        f"CVXPY's program of {count:,} variables", BYTES_PER_VARIABLE * count, MEMORY_LIMIT
    )
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
    return cvxpy.Problem(cvxpy.Maximize(accepted), constraints)
