"""Maximum flows with integer capacities, in this process or in an engine process.

Sums of integers are exact in int64 and in float64: inflow and outflow of a node are equal, and an
arc is saturated or has a residual capacity of at least one unit.  With other floats, a rounding
error can leave an excess at a node forever.
"""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import ENGINES, MODULES
from otlp.timing import loaded, seconds_left


def integer_flow(
    engine: str,
    network: FlowNetwork,
    number: type[np.generic],
    bits: int,
    arcs_per_second: float,
    most_arcs_here: int,
) -> PrimalDual[FloatArray, Mask]:
    """Return the flow on each arc, and a mask of the nodes on the sink side of a minimum cut.

    Engines have no time limit and do not react to Ctrl-C, so a network that may take until the
    deadline, or is large, is solved in a separate process that can be killed.

    Parameters
    ----------
    engine : str
        Name of an engine in `engine_server`.
    network : FlowNetwork
    number : type
        Type of the engine's capacities.
    bits : int
        Maximum number of bits of the total capacities.
    arcs_per_second : float
        About 1 % of the engine's usual speed.
    most_arcs_here : int
        Number of arcs that the engine solves in a tenth of a second.

    Returns
    -------
    PrimalDual
        Flow and mask, of shapes (arcs,) and (nodes,).
    """
    scaled, exponent = to_integers(network, bits)
    source = network.source
    ends = np.array([source, source + 1])  # The sink follows the source.
    arguments = ends, network.tails, network.heads, scaled.astype(number)
    here = scaled.size <= min(most_arcs_here, arcs_per_second * seconds_left())
    if here:
        loaded(MODULES[engine])
    flows, reached = ENGINES[engine](*arguments) if here else call_engine(engine, arguments)
    beyond = np.ones(source + 2, dtype=bool)
    beyond[reached] = False
    return PrimalDual(np.ldexp(flows.astype(np.float64), -exponent), beyond)


def to_integers(network: FlowNetwork, bits: int) -> tuple[FloatArray, int]:
    """Convert capacities to integers, so that sums of flows are exact and do not overflow.

    The scale is a power of two such that the sums at the source and at the sink are below 2^bits.

    Parameters
    ----------
    network : FlowNetwork
    bits : int

    Returns
    -------
    capacities : ndarray, shape (arcs,)
        Integers in float64, capped at the larger total, which no flow can exceed.
    exponent : int
        Each integer is ``rint(2^exponent * capacity)``.

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
            f"capacities must be at least 0 with finite totals, got minimum {given.min()} and "
            f"totals {at_source} and {at_sink}"
        )
    exponent = bits - int(np.frexp(total)[1])
    scaled: FloatArray = np.rint(np.ldexp(np.minimum(given, total), exponent))
    return scaled, exponent
