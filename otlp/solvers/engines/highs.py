"""HiGHS: the simplex and interior point methods, through highspy's array interface."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.reductions.reduction import PrimalDual
from otlp.reductions.transport_program import TransportProgram
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import MODULES, run_highs
from otlp.timing import checkpoint, loaded, seconds_left

METHODS = {"interior point": 0, "dual simplex": 1, "primal simplex": 4}
"""What HiGHS calls them in its option simplex_strategy, where it has a word for them."""

SIMPLEX_LIMIT = 20_000
"""Up to so many variables the dual simplex method is faster than the interior point method."""

TOLERANCE = 1e-10
"""The smallest feasibility tolerance that HiGHS takes."""

MOST_VARIABLES_HERE = 5_000
"""So few take HiGHS a fraction of a second.  It is slow to answer time limits, and deaf to Ctrl-C:
a larger program is solved in a process that can be killed."""

UNIT = 2.0**-10
"""Masses are passed in this unit: the tolerance, which is absolute, is then 1e-13 of the total."""


def solve(
    program: TransportProgram,
) -> tuple[PrimalDual[FloatArray, FloatArray], dict[str, object]]:
    """Solve a transport program.

    Parameters
    ----------
    program : TransportProgram

    Returns
    -------
    answer : PrimalDual
        The variables, shape (m,), and what one unit more of each row's mass is worth.
    details : dict
        The method, and its iterations.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If HiGHS rejects an option or the model, or ends without an optimum.
    """
    method = choose_method(program)
    here = program.reward.size <= MOST_VARIABLES_HERE
    if here:
        loaded(MODULES["highs"])
    seconds = seconds_left() if here else np.inf
    size = program.row_mass.size
    most = np.concatenate((program.row_mass, program.column_mass)) / UNIT
    least = np.full(most.size, -np.inf)
    if program.exact:
        least[size:] = most[size:]
    arguments = (
        np.array([METHODS[method], TOLERANCE, seconds]),
        program.rows,
        size + program.columns,
        program.reward,
        most,
        least,
    )
    x, dual, status, iterations = run_highs(*arguments) if here else call_engine("highs", arguments)
    words = bytes(status).decode()
    if words == "Time limit reached":
        checkpoint()
        raise TimeoutError(words)
    if words != "Optimal":
        raise RuntimeError(f"ended with status {words}")
    details: dict[str, object] = {"method": method, "iterations": int(iterations[0])}
    return PrimalDual(x * UNIT, -dual[:size]), details


def choose_method(program: TransportProgram) -> str:
    """Choose the fastest of the `METHODS` that end at a vertex.

    Upper bounds alone are met by x = 0, from where the primal simplex method is 3 to 7 times as
    fast as the dual one at 10,000 variables and more.
    """
    if not program.exact:
        return "primal simplex"
    return "dual simplex" if program.reward.size <= SIMPLEX_LIMIT else "interior point"
