"""OR-Tools: push-relabel on integers, with capacities scaled to 61 bits."""

from __future__ import annotations

import sys

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.flow_process import flow_process
from otlp.solvers.engines.flow_server import run_ortools

__all__ = ["max_flow", "to_integers"]

ARCS_PER_SECOND = 100_000.0
"""A hundredth of the usual pace: below it, a time limit is not at risk."""


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
    capacities, exponent = to_integers(network)
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


def to_integers(network: FlowNetwork) -> tuple[IntArray, int]:
    """Scale capacities to integers by a power of two, so that no sum of flows overflows int64.

    OR-Tools answers OPTIMAL with a wrong value where a capacity has overflowed, so the scale
    follows the totals at source and sink, and no arc keeps more than both.

    Returns
    -------
    capacities : ndarray of int64, shape (arcs,)
    exponent : int
        Each is ``rint(2^exponent * capacity)``; the totals stay below 2^61.

    Raises
    ------
    RuntimeError
        If a capacity is NaN or negative, or the totals are not finite.
    """
    given = network.capacities
    at_source = float(given[: network.tokens].sum())
    at_sink = float(given[given.size - network.groups :].sum())
    total = max(at_source, at_sink)
    if not (np.isfinite(total) and given.min() >= 0.0):
        raise RuntimeError(
            f"capacities must be at least 0 with finite totals: the least is {given.min()}, "
            f"the totals are {at_source} and {at_sink}"
        )
    exponent = 61 - int(np.frexp(total)[1])
    scaled = np.rint(np.ldexp(np.minimum(given, total), exponent))
    return scaled.astype(np.int64), exponent
