"""The optimum of a relaxed program."""

from __future__ import annotations

import numpy as np

from otlp.reductions import (
    NetworkReduction,
    RelaxedOTLP,
)
from otlp.solvers.engines import ortools


def maximum(relaxed: RelaxedOTLP) -> np.ndarray:
    """Return an optimal S for any groups."""
    network, _ = NetworkReduction().apply(relaxed)
    return ortools.max_flow(network).primal[network.middle]
