"""Capacities as integers, so that an engine's sums of flows have no rounding errors."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray
from otlp.reductions.flow_network import FlowNetwork


def to_integers(network: FlowNetwork, bits: int) -> tuple[FloatArray, int]:
    """Scale capacities by a power of two and round them, so that no sum of flows overflows.

    Parameters
    ----------
    network : FlowNetwork
    bits : int
        The sums of the capacities at the source and at the sink stay below 2^bits.

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
