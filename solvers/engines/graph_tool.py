"""graph-tool: push-relabel on float64 capacities, in a process of its own.

graph-tool has no wheel, and its builds for the system's Python crash beside another numpy, which
no `except` catches.  So it is never imported here: an interpreter that has it runs `engine_server`.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import numpy as np

from otlp.distribution import FloatArray
from otlp.errors import EngineNotFoundError
from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.engine_process import call_engine
from otlp.solvers.engines.integers import to_integers
from otlp.timing import checkpoint

BITS = 52
"""Whole numbers below 2^53 add up exactly in float64; with other numbers a node's excess may never
drain, by a rounding error, and the engine was seen to crash on that."""

ISOLATED = ("-I",)
"""What this process added to Python's paths is not for another Python."""

INTERPRETER_VARIABLE = "OTLP_GRAPH_TOOL_PYTHON"
"""Environment variable that names the Python that has graph-tool."""


def max_flow(network: FlowNetwork) -> FloatArray:
    """Arc flows of a maximum flow, exact for capacities rounded to 2^-51 of their total.

    Parameters
    ----------
    network : FlowNetwork

    Returns
    -------
    ndarray, shape (arcs,)

    Raises
    ------
    EngineNotFoundError
        If no interpreter has graph-tool: tried are the one that the environment variable
        OTLP_GRAPH_TOOL_PYTHON names, or else the running one and /usr/bin/python3.
    TimeoutError
        At the deadline; the engine's process is killed.
    RuntimeError
        If the engine fails, in its own words.
    """
    named = os.environ.get(INTERPRETER_VARIABLE)
    interpreter = _find((named,) if named else (sys.executable, "/usr/bin/python3"))
    capacities, exponent = to_integers(network, BITS)
    ends = np.array([network.source, network.sink])
    arguments = ends, network.tails, network.heads, capacities
    (flows,) = call_engine((interpreter, *ISOLATED), "graph-tool", arguments)
    result: FloatArray = np.ldexp(flows, -exponent)
    return result


@cache
def _find(candidates: tuple[str, ...]) -> str:
    """First interpreter in which the engine works; its process is then already there."""
    reasons = []
    for interpreter in candidates:
        try:
            call_engine((interpreter, *ISOLATED), "graph-tool", None)
        except (OSError, RuntimeError) as error:
            checkpoint()
            reasons.append(f"{interpreter}: {error}")
        else:
            return interpreter
    raise EngineNotFoundError(
        "no Python with graph-tool was found; pip does not have it: `apt-get install "
        "python3-graph-tool` (Debian, Ubuntu) or `conda install -c conda-forge graph-tool`, and "
        f"name that Python in {INTERPRETER_VARIABLE} if it is not one of those tried "
        f"({'; '.join(reasons)})"
    )
