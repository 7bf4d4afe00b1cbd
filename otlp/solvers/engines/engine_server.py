"""An engine in a process of its own: requests come in on stdin, answers go out on stdout.

This file runs by itself and imports nothing of this library.  The process can be killed when a time
limit ends or the user interrupts, and a crash of the engine stays inside it.

A request is a number, and so many arguments of the engine's function below; a reply is what it
returned, or an error in words.  `multiprocessing.connection` frames them.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


def run_ortools(ends: Any, tails: Any, heads: Any, capacities: Any) -> tuple[Any, ...]:
    """Arc flows of a maximum flow, and the nodes on the source's side of the minimum cut.

    By the push-relabel of OR-Tools, with int64 capacities.
    """
    import numpy as np
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tails, heads, capacities)
    status = solver.solve(int(ends[0]), int(ends[1]))
    if status != solver.OPTIMAL:
        raise RuntimeError(f"OR-Tools SimpleMaxFlow ended with {status.name}")
    return solver.flows(arcs), np.array(solver.get_source_side_min_cut(), dtype=np.int64)


def run_graph_tool(ends: Any, tails: Any, heads: Any, capacities: Any) -> tuple[Any, ...]:
    """What `run_ortools` answers, by graph-tool's push-relabel, with float64 capacities."""
    import graph_tool.flow
    import numpy as np

    graph = graph_tool.Graph()
    # Else each of the reverse arcs that the algorithm adds costs its nodes' degrees to remove.
    graph.set_fast_edge_removal(True)
    graph.add_vertex(int(ends.max()) + 1)
    graph.add_edge_list(np.stack((tails, heads), axis=1))
    capacity = graph.new_edge_property("double", vals=capacities)
    source, sink = (graph.vertex(int(end)) for end in ends)
    left = graph_tool.flow.push_relabel_max_flow(graph, source, sink, capacity)
    flows = capacities - left.a[: len(capacities)]
    reached = graph_tool.flow.min_st_cut(graph, source, capacity, left)
    return flows, np.flatnonzero(reached.a)


def run_highs(
    settings: Any, rows: Any, columns: Any, reward: Any, most: Any, least: Any
) -> tuple[Any, ...]:
    """Maximise reward @ x over x >= 0, the variables' rows and columns within limits, by HiGHS.

    Parameters
    ----------
    settings : ndarray, shape (3,)
        The number of the simplex method, or 0 for the interior point method; the tolerance, and
        the limit in seconds.
    rows, columns : ndarray, shape (m,), int64
        The two sums that each variable is part of.
    reward : ndarray, shape (m,)
    most, least : ndarray, shape (r,)
        Bounds of all sums.

    Returns
    -------
    x, duals, status (in UTF-8), iterations : ndarray
    """
    import highspy
    import numpy as np

    highs = highspy.Highs()
    simplex, tolerance, seconds = settings.tolist()
    options: dict[str, Any] = {
        "output_flag": False,
        "solver": "simplex" if simplex else "ipx",
        "simplex_strategy": int(simplex) or 1,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "ipm_optimality_tolerance": tolerance,
        "time_limit": seconds,
    }
    for name, value in options.items():
        if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS {highs.version()} rejected the option {name} = {value}")
    count = reward.size
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, most.size
    model.col_cost_ = -reward
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.full(count, highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = least, most
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = 2 * np.arange(count + 1, dtype=np.int32)
    model.a_matrix_.index_ = np.stack((rows, columns), axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.ones(2 * count)
    if highs.passModel(model) != highspy.HighsStatus.kOk:
        raise RuntimeError(f"HiGHS {highs.version()} rejected the model")
    highs.run()
    found, info = highs.getSolution(), highs.getInfo()
    status = highs.modelStatusToString(highs.getModelStatus()).encode()
    return (
        np.asarray(found.col_value, dtype=np.float64),
        np.asarray(found.row_dual, dtype=np.float64),
        np.frombuffer(status, dtype=np.uint8),
        np.array([info.simplex_iteration_count + info.ipm_iteration_count]),
    )


ENGINES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "ortools": run_ortools,
    "graph-tool": run_graph_tool,
    "highs": run_highs,
}

MODULES: dict[str, str] = {
    "ortools": "ortools.graph.python.max_flow",
    "graph-tool": "graph_tool.flow",
    "highs": "highspy",
}
"""What these functions import: whoever calls them in his own process loads it beforehand."""


@contextmanager
def ended_with(requests: int) -> Iterator[None]:
    """End this process, in the middle of compiled code too, when nobody is left to ask.

    While a request is answered nothing else comes in, so that a signal about input tells that
    the other end was closed, or its process killed.  (A signal at the death of the parent, which
    Linux has, would come at the end of the thread that started this process.)
    """
    before = fcntl.fcntl(requests, fcntl.F_GETFL)
    fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(requests, fcntl.F_SETFL, before | os.O_ASYNC)
    try:
        if select.select([requests], [], [], 0)[0]:
            raise EOFError
        yield
    finally:
        fcntl.fcntl(requests, fcntl.F_SETFL, before)


def serve(engine: str, requests: Connection, replies: Connection) -> None:
    """Answer requests until they end."""
    while True:
        try:
            arguments = [requests.recv() for _ in range(requests.recv())]
        except EOFError:
            return
        with ended_with(requests.fileno()):
            try:
                answer: Any = ENGINES[engine](*arguments)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
        replies.send(answer)


if __name__ == "__main__":
    # Ctrl-C reaches every process at the terminal: it is for the caller to stop this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What an engine prints goes to stderr, not among the replies.
    channel = os.dup(1)
    os.dup2(2, 1)
    serve(sys.argv[1], Connection(0, writable=False), Connection(channel, readable=False))
