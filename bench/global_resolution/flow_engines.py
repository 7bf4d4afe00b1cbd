"""Times of the maximum flows of Tables 1 and 3 by engine, and the paper's times.

    python bench/global_resolution/flow_engines.py    # graph-tool: docs/install.md

Processor milliseconds of the engine from arcs to flow and cut, and of the whole plan without
certificate: the minimum over repeats for each row, then the median over the rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import cases
import click
import numpy as np

import otlp
from otlp.cli.options import rows_option
from otlp.cli.output import progress, table
from otlp.data.captures import builtin
from otlp.reductions import Chain, MergeTuples, NetworkReduction, PrimalDual, Relaxation, Support
from otlp.solvers.engines import graph_tool, ortools
from otlp.solvers.engines.engine_server import run_graph_tool, run_ortools
from otlp.solvers.engines.whole_flow import to_integers

SIZES = [(10, 2), (10, 3), (10, 4), (10, 5), (100, 2), (100, 3), (1000, 2)]
NETWORKS = {
    "all tuples": Chain(Support(), Relaxation(), NetworkReduction()),
    "merged by set": Chain(Support(), MergeTuples(), NetworkReduction()),
}


def graph_tool_by_default(ends: Any, tails: Any, heads: Any, capacities: Any) -> tuple[Any, ...]:
    """Call graph-tool as in its manual: only the flow, with arcs removed one by one."""
    import graph_tool.flow

    graph = graph_tool.Graph()
    graph.add_vertex(int(ends.max()) + 1)
    graph.add_edge_list(np.stack((tails, heads), axis=1))
    capacity = graph.new_edge_property("double", vals=capacities)
    left = graph_tool.flow.push_relabel_max_flow(graph, *map(int, ends), capacity)
    return capacities - left.a[: len(capacities)], None


ENGINES: dict[str, tuple[Callable[..., Any], type[np.generic], int]] = {
    "graph-tool by default": (graph_tool_by_default, np.float64, graph_tool.BITS),
    "graph-tool": (run_graph_tool, np.float64, graph_tool.BITS),
    "OR-Tools": (run_ortools, np.int64, ortools.BITS),
}

MOST_ARCS = {"graph-tool by default": 6e5}
"""Limit of arcs: the time is quadratic in the arcs of a node, minutes beyond the limit."""


def solve(problem: otlp.Problem, chain: Chain, engine: str) -> tuple[float, float, float]:
    """Return the seconds of the engine and of the plan, and the value of the flow."""
    run, number, bits = ENGINES[engine]
    begin = time.process_time()
    network, inverse = chain.apply(problem)
    scaled, exponent = to_integers(network, bits)
    ends = np.array([network.source, network.sink])
    arguments = ends, network.tails, network.heads, scaled.astype(number)
    engine_begin = time.process_time()
    flows, _ = run(*arguments)
    engine_end = time.process_time()
    flow = np.ldexp(np.asarray(flows, dtype=np.float64), -exponent)
    chain.invert(PrimalDual(flow), inverse)
    whole = time.process_time() - begin
    return engine_end - engine_begin, whole, float(flow[network.middle].sum())


def cell(problems: list[otlp.Problem], chain: Chain, engine: str, budget: float) -> list[float]:
    """Return median milliseconds of engine and plan, over the rows within the budget."""
    end = time.process_time() + budget
    least = []
    for problem in problems:
        tries = [solve(problem, chain, engine)]
        while len(tries) < 5 and time.process_time() + tries[0][1] < end:
            tries.append(solve(problem, chain, engine))
        engine_seconds, whole, value = map(min, zip(*tries, strict=True))
        assert abs(value - otlp.optimal_acceptance(problem)) < 1e-9, (engine, value)
        least.append((engine_seconds, whole))
        if time.process_time() > end:
            break
    return [1e3 * median(column) for column in zip(*least, strict=True)]


@click.command(help=__doc__, context_settings={"show_default": True})
@rows_option(10)
@click.option("--budget", default=10.0, help="Seconds per engine and size.")
@click.option("--most-arcs", default=2e6, help="Maximum number of arcs of a network.")
def main(rows: int, budget: float, most_arcs: float) -> None:
    capture = builtin()
    here = [name for name in ENGINES if name == "OR-Tools" or "graph-tool" in cases.engines()]
    ways = [(network, engine) for network in NETWORKS for engine in here]
    found: dict[str, list[list[float]]] = {", ".join(way): [] for way in ways}
    with progress("engines", len(SIZES) * len(ways)) as step:
        for k, n in SIZES:
            problems = list(cases.problems(capture, cases.spread(capture, rows), k, n))
            drafts = problems[0].drafts
            tuples, (sets, members) = drafts.tuple_count(), drafts.set_count()
            arcs = {"all tuples": tuples * (n + 1), "merged by set": sets + members}
            for network, engine in ways:
                step(f"({k}, {n}) {network}, {engine}")
                done = found[f"{network}, {engine}"]
                # Smaller sizes predict the time of this size.
                late = [c for c, (a, b) in zip(done, SIZES, strict=False) if a <= k and b <= n]
                most = min(most_arcs, MOST_ARCS.get(engine, math.inf))
                if arcs[network] > most or any(not c or c[0] > 200 * budget for c in late):
                    done.append([])
                else:
                    done.append(cell(problems, NETWORKS[network], engine, budget))
    made = table("ms: engine, whole plan", *map(str, SIZES))
    for label in ("max-flow", "optimized max-flow"):
        made.add_row(f"paper: {label}", *cases.PAPER["times"][label])
    for label, cells in found.items():
        made.add_row(label, *(", ".join(map(cases.shown, c)) if c else "-" for c in cells))
    cases.console.print(made)
    cases.write("engines", {"rows": rows, "sizes": SIZES, "milliseconds": found})


if __name__ == "__main__":
    main()
