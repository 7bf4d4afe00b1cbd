"""What engines of maximum flows share: whole numbers as capacities, and which process they run in.

Sums of whole numbers are exact, in int64 as in float64: what flows into a node flows out of it,
and an arc is full or has room for one unit at least.  With other floats a node's excess may never
drain, by a rounding error.
"""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.engine_server import ENGINES, MODULES
from otlp.timing import loaded, seconds_left


def whole_flow(
    engine: str,
    network: FlowNetwork,
    number: type[np.generic],
    bits: int,
    arcs_per_second: float,
    most_arcs_here: int,
) -> PrimalDual[FloatArray, Mask]:
    """Flow on each arc, and which nodes are on the sink's side of the minimum cut.

    An engine knows no limit of time: a network that might come near the deadline is solved in a
    process that can be killed, and so is a large one, for Ctrl-C, which no engine answers.

    Parameters
    ----------
    engine : str
        A name that `engine_server` knows.
    network : FlowNetwork
    number : type
        Of the engine's capacities.
    bits : int
        Of their totals.
    arcs_per_second : float
        About a hundredth of the engine's usual pace.
    most_arcs_here : int
        So many arcs take it a tenth of a second.

    Returns
    -------
    PrimalDual
        Of shapes (arcs,) and (nodes,).
    """
    scaled, exponent = to_integers(network, bits)
    source = network.source
    ends = np.array([source, source + 1])  # and the sink behind it
    arguments = ends, network.tails, network.heads, scaled.astype(number)
    here = scaled.size <= min(most_arcs_here, arcs_per_second * seconds_left())
    if here:
        loaded(MODULES[engine])
    flows, reached = ENGINES[engine](*arguments) if here else call_engine(engine, arguments)
    beyond = np.ones(source + 2, dtype=bool)
    beyond[reached] = False
    return PrimalDual(np.ldexp(flows.astype(np.float64), -exponent), beyond)


def to_integers(network: FlowNetwork, bits: int) -> tuple[FloatArray, int]:
    """Capacities as integers, so that the engine's sums of flows neither round nor overflow.

    They are scaled by a power of two: their sums at the source and at the sink stay below 2^bits.

    Parameters
    ----------
    network : FlowNetwork
    bits : int

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
    exponent = bits - int(np.frexp(total)[1])
    scaled: FloatArray = np.rint(np.ldexp(np.minimum(given, total), exponent))
    return scaled, exponent
