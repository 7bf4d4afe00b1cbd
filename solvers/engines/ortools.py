"""OR-Tools: push-relabel on int64 capacities."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import run_ortools
from otlp.solvers.engines.integers import to_integers
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
    scaled, exponent = to_integers(network, BITS)
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
