"""OR-Tools: push-relabel on int64 capacities."""

from __future__ import annotations

import sys

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.flow_process import flow_process
from otlp.solvers.engines.flow_server import run_ortools
from otlp.solvers.engines.integers import to_integers

__all__ = ["max_flow"]

BITS = 61
"""The totals stay far enough below 2^63: where a capacity overflows, OR-Tools answers OPTIMAL."""

ARCS_PER_SECOND = 100_000.0
"""About a hundredth of the usual pace."""


def max_flow(network: FlowNetwork, time_limit: float | None = None) -> FloatArray:
    """Arc flows of a maximum flow, exact for capacities rounded to 2^-60 of their total.

    Parameters
    ----------
    network : FlowNetwork
    time_limit : float, optional
        Seconds.  The engine itself knows no limit: a network that might come near it, at a
        hundredth of the usual pace, is solved in a process that can be killed.

    Returns
    -------
    ndarray, shape (arcs,)

    Raises
    ------
    TimeoutError
        If the time limit ends first.
    RuntimeError
        If the engine fails, in its own words.
    EngineNotFoundError
        If OR-Tools cannot be loaded.
    """
    scaled, exponent = to_integers(network, BITS)
    capacities = scaled.astype(np.int64)
    if time_limit is None or capacities.size <= ARCS_PER_SECOND * time_limit:
        flows = _run_here(network, capacities)
    else:
        process = flow_process((sys.executable,), "ortools")
        flows = process.max_flow(network, capacities, time_limit)
    result: FloatArray = np.ldexp(np.asarray(flows, dtype=np.float64), -exponent)
    return result


def _run_here(network: FlowNetwork, capacities: IntArray) -> IntArray:
    arcs = network.tails, network.heads, capacities
    try:
        flows: IntArray = run_ortools(network.sink + 1, *arcs, network.source, network.sink)
    except ImportError as error:
        raise EngineNotFoundError(
            f"OR-Tools cannot be loaded ({error}): `pip install ortools`, and highspy below 1.15, "
            "which newer ones do not share a process with"
        ) from error
    return flows
