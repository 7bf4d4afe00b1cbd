"""graph-tool: push-relabel on float64 capacities, the paper's own engine; PyPI does not have it."""

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
from otlp.solvers.engines.whole_flow import whole_flow
from otlp.timing import loaded, loading

BITS = 52
"""Whole numbers below 2^53 are exact in float64."""


def load() -> None:
    """Load graph-tool.

    Raises
    ------
    EngineNotFoundError
        If it is not there, or does not load.
    """
    try:
        with loading():
            _try_out()
        loaded(MODULES["graph-tool"])
    except ImportError as error:
        raise EngineNotFoundError(
            f"graph-tool cannot be loaded ({error}): `apt install python3-graph-tool`, an "
            "environment made by `/usr/bin/python3 -m venv --system-site-packages`, and 'numpy<2' "
            "there; or `conda install -c conda-forge graph-tool`"
        ) from error


@cache
def _try_out() -> None:
    """Load it in another process first: beside a NumPy that it was not built for it crashes."""
    command = [sys.executable, "-P", "-c", f"import {MODULES['graph-tool']}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        *_, last = f"exit status {done.returncode}\n{done.stderr}".strip().splitlines()
        raise ImportError(f"beside NumPy {np.__version__}: {last}")


def max_flow(network: FlowNetwork) -> PrimalDual[FloatArray, Mask]:
    """Find a maximum flow, exact for capacities rounded to 2^-51 of their total.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    PrimalDual
        As of `otlp.solvers.engines.ortools.max_flow`.

    Raises
    ------
    TimeoutError
        At the deadline.
    RuntimeError
        If the engine fails, in its own words.
    EngineNotFoundError
        If graph-tool is not there, or does not load.
    """
    load()
    return whole_flow("graph-tool", network, np.float64, BITS, 1e4, 50_000)
