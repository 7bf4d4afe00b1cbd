"""Server that runs an engine in a separate process, with requests on stdin and replies on stdout.

This file is a script that does not import this library.  The process can be killed at a time limit
or an interrupt, and a crash of the engine does not crash the caller.

A request is the number of arguments of the engine's function, followed by the arguments; a reply is
the return value or an error message.  The framing is that of `multiprocessing.connection`.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def run_ortools(ends: Any, tails: Any, heads: Any, capacities: Any) -> tuple[Any, ...]:
    """Return the arc flows of a maximum flow, and the nodes on the source side of a minimum cut.

    Uses push-relabel of OR-Tools, with int64 capacities.
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
    """Return the same as `run_ortools`, with graph-tool's push-relabel and float64 capacities."""
    import graph_tool.flow
    import numpy as np

    graph = graph_tool.Graph()
    # Otherwise removing a reverse arc of the algorithm costs time proportional to node degrees.
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
    """Maximise reward @ x over x >= 0 with bounds on row and column sums, using HiGHS.

    Parameters
    ----------
    settings : ndarray, shape (3,)
        HiGHS's simplex strategy, or 0 for the interior point method; the tolerance; the time limit
        in seconds.
    rows, columns : ndarray, shape (m,), int64
        Indices of the two sums that contain each variable.
    reward : ndarray, shape (m,)
    most, least : ndarray, shape (r,)
        Upper and lower bounds of all sums.

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
"""Modules that these functions import; load them first to call a function in the own process."""


@contextmanager
def exit_when_closed(requests: int) -> Iterator[None]:
    """End this process, also inside compiled code, when the client closes the pipe.

    There is no input while a request is processed, so an input signal means that the other end was
    closed or its process was killed.  (The parent death signal of Linux would arrive when the
    thread ends that started this process.)
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
    """Process requests until the end of input."""
    while True:
        try:
            arguments = [requests.recv() for _ in range(requests.recv())]
        except EOFError:
            return
        with exit_when_closed(requests.fileno()):
            try:
                answer: Any = ENGINES[engine](*arguments)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
        replies.send(answer)


if __name__ == "__main__":
    from multiprocessing.connection import Connection

    # Ctrl-C reaches every process at the terminal; only the caller stops this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Redirect output of the engine to stderr, so that it does not mix with the replies.
    channel = os.dup(1)
    os.dup2(2, 1)
    serve(sys.argv[1], Connection(0, writable=False), Connection(channel, readable=False))
