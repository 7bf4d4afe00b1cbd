"""A max-flow engine in a process of its own: requests come in on stdin, flows go out on stdout.

This file runs by itself, under any Python that has numpy and the engine, and so imports nothing
of this library.  The process can be killed when a time limit ends, and a crash of the engine
stays inside it.

A request is six int64 numbers (nodes, arcs, source, sink, 0 for int64 or 1 for float64
capacities, 0) and then the arrays tails, heads and capacities.  A reply is six int64 numbers (0
for flows or 1 for an error, bytes that follow, 0, 0, 0, 0) and then the flows, in the type of the
capacities, or a text in UTF-8.  The first reply comes unasked, and says whether the engine works.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Any, BinaryIO

HEADER = struct.Struct("<6q")
CAPACITY_TYPES = ("<i8", "<f8")


def run_ortools(nodes: int, tails: Any, heads: Any, capacities: Any, source: int, sink: int) -> Any:
    """Arc flows of a maximum flow, by the push-relabel of OR-Tools, with int64 capacities."""
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tails, heads, capacities)
    status = solver.solve(source, sink)
    if status != solver.OPTIMAL:
        raise RuntimeError(f"OR-Tools SimpleMaxFlow ended with {status.name}")
    return solver.flows(arcs)


def run_graph_tool(
    nodes: int, tails: Any, heads: Any, capacities: Any, source: int, sink: int
) -> Any:
    """Arc flows of a maximum flow, by the push-relabel of graph-tool, with float64 capacities."""
    import graph_tool.flow
    import numpy as np

    graph = graph_tool.Graph()
    # Else each of the reverse arcs that the algorithm adds costs its node's degree to remove.
    graph.set_fast_edge_removal(True)
    graph.add_vertex(nodes)
    # Everything reversed: from the many groups to the few tokens it is up to twice as fast.
    graph.add_edge_list(np.stack((heads, tails), axis=1))
    capacity = graph.new_edge_property("double", vals=capacities)
    residual = graph_tool.flow.push_relabel_max_flow(
        graph, graph.vertex(sink), graph.vertex(source), capacity
    )
    return capacities - residual.a[: len(capacities)]


def serve(engine: str, requests: BinaryIO, replies: BinaryIO) -> None:
    """Prove the engine on one arc, then answer requests until they end."""
    try:
        if engine == "graph-tool":
            # Before numpy: some builds are reported to crash the other way round.
            import graph_tool.flow  # noqa: F401
        import numpy as np

        run = {"ortools": run_ortools, "graph-tool": run_graph_tool}[engine]
        one = np.ones(1, dtype=CAPACITY_TYPES[engine == "graph-tool"])
        run(2, np.array([0]), np.array([1]), one, 0, 1)
    except Exception as error:
        send(replies, 1, f"{type(error).__name__}: {error}".encode())
        return
    send(replies, 0, b"")
    while len(header := requests.read(HEADER.size)) == HEADER.size:
        nodes, arcs, source, sink, real, _ = HEADER.unpack(header)
        tails, heads, capacities = (
            np.frombuffer(requests.read(8 * arcs), dtype=kind)
            for kind in ("<i8", "<i8", CAPACITY_TYPES[real])
        )
        try:
            flows = run(nodes, tails, heads, capacities, source, sink)
        except Exception as error:
            send(replies, 1, f"{type(error).__name__}: {error}".encode())
        else:
            send(replies, 0, np.asarray(flows, dtype=capacities.dtype).tobytes())


def send(replies: BinaryIO, failed: int, content: bytes) -> None:
    """Write one reply."""
    replies.write(HEADER.pack(failed, len(content), 0, 0, 0, 0))
    replies.write(content)
    replies.flush()


if __name__ == "__main__":
    # The modules beside this file are named like the engines, and must not be found for them.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path = [entry for entry in sys.path if os.path.realpath(entry) != here]
    # What an engine prints goes to stderr, not among the replies.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, channel)
