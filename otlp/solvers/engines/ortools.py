"""OR-Tools: push-relabel on int64 capacities."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines.whole_flow import whole_flow

BITS = 61
"""The totals stay far enough below 2^63: where a capacity overflows, OR-Tools answers OPTIMAL."""


def max_flow(network: FlowNetwork) -> PrimalDual[FloatArray, Mask]:
    """Find a maximum flow, exact for capacities rounded to 2^-60 of their total.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    PrimalDual
        The flow on each arc, shape (arcs,), and a mask of the nodes on the sink's side of the
        minimum cut.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If the engine fails, in its own words.
    EngineNotFoundError
        If OR-Tools cannot be loaded.
    """
    try:
        return whole_flow("ortools", network, np.int64, BITS, 1e5, 1_000_000)
    except ImportError as error:
        raise EngineNotFoundError(
            f"OR-Tools cannot be loaded ({error}): `pip install ortools`, and highspy below "
            "1.15, which newer ones do not share a process with"
        ) from error
