"""graph-tool: push-relabel with float64 capacities; the engine of the paper, not on PyPI."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np

from otlp.distribution import FloatArray, Mask
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual
from otlp.solvers.engines.engine_server import MODULES
from otlp.solvers.engines.whole_flow import integer_flow
from otlp.timing import loaded, loading

BITS = 52
"""Maximum number of bits of the totals; integers below 2^53 are exact in float64."""


def load() -> None:
    """Load graph-tool.

    Raises
    ------
    EngineNotFoundError
        If graph-tool is not installed or cannot be loaded.
    """
    try:
        with loading():
            _test_import()
        loaded(MODULES["graph-tool"])
    except ImportError as error:
        raise EngineNotFoundError(
            f"graph-tool cannot be loaded ({error}); run `apt install python3-graph-tool`, create "
            "an environment with `/usr/bin/python3 -m venv --system-site-packages` and install "
            "'numpy<2' in it; or run `conda install -c conda-forge graph-tool`"
        ) from error


@cache
def _test_import() -> None:
    """Import graph-tool in another process, because it crashes with an incompatible NumPy."""
    command = [sys.executable, "-P", "-c", f"import {MODULES['graph-tool']}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        *_, last = f"exit status {done.returncode}\n{done.stderr}".strip().splitlines()
        raise ImportError(f"with NumPy {np.__version__}: {last}")


def max_flow(network: FlowNetwork) -> PrimalDual[FloatArray, Mask]:
    """Compute a maximum flow, exact for capacities rounded to 2^-51 of their total.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    PrimalDual
        See `otlp.solvers.engines.ortools.max_flow`.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If the engine fails, with the engine's error message.
    EngineNotFoundError
        If graph-tool is not installed or cannot be loaded.
    """
    load()
    return integer_flow("graph-tool", network, np.float64, BITS, 1e4, 50_000)
