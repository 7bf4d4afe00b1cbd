"""OR-Tools: push-relabel on int64 capacities."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import run_ortools
from otlp.timing import seconds_left

BITS = 61
"""The totals stay far enough below 2^63: where a capacity overflows, OR-Tools answers OPTIMAL."""

ARCS_PER_SECOND = 100_000.0
"""About a hundredth of the usual pace."""

MOST_ARCS_HERE = 1_000_000
"""The engine does not answer Ctrl-C, but so few arcs take it a tenth of a second."""


def max_flow(network: FlowNetwork) -> FloatArray:
    """Arc flows of a maximum flow, exact for capacities rounded to 2^-60 of their total.

    Parameters
    ----------
    network : FlowNetwork
        The engine itself knows no limit of time: a network that might come near the deadline, at
        a hundredth of the usual pace, is solved in a process that can be killed, and so is one of
        more than a million arcs.

    Returns
    -------
    ndarray, shape (arcs,)

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If the engine fails, in its own words.
    EngineNotFoundError
        If OR-Tools cannot be loaded.
    """
    scaled, exponent = to_integers(network)
    ends = np.array([network.source, network.sink])
    arguments = ends, network.tails, network.heads, scaled.astype(np.int64)
    if scaled.size <= min(MOST_ARCS_HERE, ARCS_PER_SECOND * seconds_left()):
        try:
            (flows,) = run_ortools(*arguments)
        except ImportError as error:
            raise EngineNotFoundError(
                f"OR-Tools cannot be loaded ({error}): `pip install ortools`, and highspy below "
                "1.15, which newer ones do not share a process with"
            ) from error
    else:
        (flows,) = call_engine("ortools", arguments)
    return np.ldexp(np.asarray(flows, dtype=np.float64), -exponent)


def to_integers(network: FlowNetwork) -> tuple[FloatArray, int]:
    """Capacities as integers, so that the engine's sums of flows neither round nor overflow.

    They are scaled by a power of two: their sums at the source and at the sink stay below 2^BITS.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    capacities : ndarray, shape (arcs,)
        Whole numbers in float64; none is above the totals, which no flow can exceed.
    exponent : int
        Each is ``rint(2^exponent * capacity)``.

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
    exponent = BITS - int(np.frexp(total)[1])
    scaled: FloatArray = np.rint(np.ldexp(np.minimum(given, total), exponent))
    return scaled, exponent
