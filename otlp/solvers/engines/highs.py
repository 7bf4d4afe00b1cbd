"""HiGHS: simplex and interior point methods, called through highspy's array interface."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.reductions.reduction import PrimalDual
from otlp.reductions.transport_program import TransportProgram
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import MODULES, run_highs
from otlp.timing import checkpoint, loaded, seconds_left

METHODS = {"interior point": 0, "dual simplex": 1, "primal simplex": 4}
"""Values of HiGHS's option simplex_strategy; 0 stands for the interior point method."""

SIMPLEX_LIMIT = 20_000
"""Number of variables up to which the dual simplex method is faster than interior point."""

TOLERANCE = 1e-10
"""Smallest feasibility tolerance that HiGHS accepts."""

MOST_VARIABLES_HERE = 5_000
"""Maximum number of variables for a solve in this process, which takes a fraction of a second.
HiGHS reacts slowly to time limits and not to Ctrl-C, so a separate process solves larger programs
and can be killed."""

UNIT = 2.0**-10
"""Unit of masses in HiGHS; the absolute tolerance is then 1e-13 of the total mass."""


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
        The variables, shape (m,), and the dual value of each row's mass.
    details : dict
        Method and number of iterations.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If HiGHS rejects an option or the model, or does not find an optimum.
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
    outcome = bytes(status).decode()
    if outcome == "Time limit reached":
        checkpoint()
        raise TimeoutError(outcome)
    if outcome != "Optimal":
        raise RuntimeError(f"ended with status {outcome}")
    details: dict[str, object] = {"method": method, "iterations": int(iterations[0])}
    return PrimalDual(x * UNIT, -dual[:size]), details


def choose_method(program: TransportProgram) -> str:
    """Return the fastest method for a program.

    With only upper bounds, x = 0 is feasible; from this point the primal simplex method is 3 to 7
    times as fast as the dual simplex method at 10,000 variables and more.
    """
    if not program.exact:
        return "primal simplex"
    return "dual simplex" if program.reward.size <= SIMPLEX_LIMIT else "interior point"
