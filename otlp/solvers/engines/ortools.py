"""OR-Tools: push-relabel with int64 capacities."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines.whole_flow import integer_flow

BITS = 61
"""Maximum number of bits of the totals, below 63, because OR-Tools returns OPTIMAL on overflow."""


def max_flow(network: FlowNetwork) -> PrimalDual[FloatArray, Mask]:
    """Compute a maximum flow, exact for capacities rounded to 2^-60 of their total.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    PrimalDual
        The flow on each arc, shape (arcs,), and a mask of the nodes on the sink side of a minimum
        cut.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If the engine fails, with the engine's error message.
    EngineNotFoundError
        If OR-Tools cannot be loaded.
    """
    try:
        return integer_flow("ortools", network, np.int64, BITS, 1e5, 1_000_000)
    except ImportError as error:
        raise EngineNotFoundError(
            f"OR-Tools cannot be loaded ({error}); run `pip install ortools 'highspy<1.15'`, as "
            "newer versions of highspy cannot be loaded in the same process"
        ) from error
