from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.distribution import IntArray
from otlp.reductions import (
    FlowNetwork,
    MergeTuples,
    NetworkReduction,
    RelaxedOTLP,
    TransportProgram,
)
from otlp.solvers.engines import highs, ortools
from otlp.solvers.engines.engine_process import EngineProcess, call_engine
from otlp.solvers.engines.ortools import BITS
from otlp.solvers.engines.whole_flow import to_integers
from otlp.timing import deadline
from tests.examples import examples
from tests.instances import problems
from tests.processes import alive, children, run_python


def network_of(problem: otlp.Problem) -> tuple[RelaxedOTLP, FlowNetwork]:
    relaxed, _ = MergeTuples().apply(problem)
    return relaxed, NetworkReduction().apply(relaxed)[0]


@examples(40)
@given(problem=problems(), exponent=st.integers(-900, 900))
def test_integers_do_not_overflow(problem: otlp.Problem, exponent: int) -> None:
    _, network = network_of(problem)
    scaled = FlowNetwork(
        network.tails,
        network.heads,
        np.ldexp(network.capacities, exponent),
        network.tokens,
        network.groups,
    )
    capacities, power = to_integers(scaled, BITS)
    assert (capacities == np.rint(capacities)).all()
    for arcs in (capacities[: network.tokens], capacities[-network.groups :]):
        # The sum of a target is 1 up to rounding.
        assert sum(map(int, arcs)) <= 2**BITS + 2 ** (BITS - 50) + arcs.size
    # Rounding changes each capacity by at most 2^-BITS of the total.
    error = np.abs(np.ldexp(capacities, -power - exponent) - network.capacities)
    assert error.max() <= 2.0 ** (1 - BITS)


def arguments_of(network: FlowNetwork, capacities: IntArray) -> list[IntArray]:
    ends = np.array([network.source, network.sink])
    return [ends, network.tails, network.heads, capacities]


def random_network(size: int, n: int) -> tuple[FlowNetwork, list[IntArray], int]:
    rng = np.random.default_rng(0)
    problem = otlp.Problem(rng.dirichlet(np.ones(size)), otlp.IID(rng.dirichlet(np.ones(size)), n))
    _, network = network_of(problem)
    capacities, power = to_integers(network, BITS)
    return network, arguments_of(network, capacities.astype(np.int64)), power


def test_a_process_gives_the_flows_of_the_engine_itself() -> None:
    network, arguments, power = random_network(8, 3)
    there, reached = call_engine("ortools", arguments)
    here = ortools.max_flow(network)
    np.testing.assert_array_equal(np.ldexp(there.astype(float), -power), here.primal)
    assert not here.dual[reached].any() and network.source in reached
    before = children(os.getpid())
    call_engine("ortools", arguments)
    assert children(os.getpid()) == before


def test_a_failed_request_is_told_and_survived() -> None:
    _, network = network_of(otlp.Problem([0.5, 0.5], otlp.IID([0.5, 0.5], 2)))
    process = EngineProcess("ortools")
    with pytest.raises(RuntimeError, match="POSSIBLE_OVERFLOW"):
        process.call(arguments_of(network, np.full(network.capacities.size, 2**62)))
    assert process.alive
    process.kill()


def test_an_engine_that_is_not_there_is_told() -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        call_engine("no such engine", [])


def test_one_thread_s_time_limit_stops_no_other_thread() -> None:
    _, small, _ = random_network(20, 3)
    _, large, _ = random_network(50, 4)
    expected = int((call_engine("ortools", small)[0] >> 9).sum())

    def stopped(_: int) -> str:
        with pytest.raises(TimeoutError) as error, deadline(0.05):
            call_engine("ortools", large)
        return str(error.value)

    def solved(_: int) -> int:
        flows = [call_engine("ortools", small)[0] for _ in range(5)]
        return int(sum((flow >> 9).sum() for flow in flows))

    with ThreadPoolExecutor(4) as pool:
        limits, sums = pool.map(stopped, range(2)), pool.map(solved, range(2))
        assert list(limits) == ["stopped after 0.05 s"] * 2
        assert list(sums) == [5 * expected] * 2


ARC = """
import numpy as np
ARC = [np.array(given) for given in ([0, 1], [0], [1], [1])]
"""
AT_ONCE = """
import os, threading
from otlp.solvers.engines.engine_process import call_engine
from tests.processes import children
begin = threading.Barrier(2)
def call():
    begin.wait()
    call_engine("ortools", ARC)
threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*children(os.getpid()))
"""
FORK = """
import os, sys
from otlp.solvers.engines.engine_process import _running, call_engine
call_engine("ortools", ARC)
(mine,) = _running
if os.fork() == 0:
    call_engine("ortools", ARC)
    print(*(process._process.pid for process in _running), flush=True)
    sys.exit()
assert os.wait()[1] == 0
call_engine("ortools", ARC)
assert list(_running) == [mine] and mine.alive
print(mine._process.pid)
"""


@pytest.mark.parametrize(("code", "most"), [(ARC + AT_ONCE, 2), (ARC + FORK, 2)])
def test_processes_end_with_their_parent(code: str, most: int) -> None:
    pids = [int(pid) for pid in run_python(code).split()]
    assert 1 <= len(set(pids)) <= most
    assert not any(map(alive, pids))


def test_an_option_that_highs_rejects_raises() -> None:
    one, zero = np.ones(1), np.zeros(1, dtype=np.int64)
    program = TransportProgram(zero, zero, reward=one, row_mass=one, column_mass=one, exact=False)
    refused = pytest.raises(RuntimeError, match=r"rejected the option time_limit = -\d")
    with refused, deadline(-1.0):
        highs.solve(program)


@pytest.mark.parametrize("size", [4, 160])
def test_exact_programs_meet_every_sum(size: int) -> None:
    rng = np.random.default_rng(size)
    program = TransportProgram(
        rows=np.repeat(np.arange(size), size),
        columns=np.tile(np.arange(size), size),
        reward=(rng.random(size * size) < 0.1).astype(float),
        row_mass=rng.dirichlet(np.ones(size)),
        column_mass=rng.dirichlet(np.ones(size)),
        exact=True,
    )
    answer, details = highs.solve(program)
    assert details["method"] == ("dual simplex" if size == 4 else "interior point")
    table = answer.primal.reshape(size, size)
    assert table.min() >= -1e-12
    np.testing.assert_allclose(table.sum(axis=1), program.row_mass, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(table.sum(axis=0), program.column_mass, rtol=0.0, atol=1e-12)


IMPORTS = {
    "otlp": "import otlp",
    "cvxpy": "import cvxpy",
    "ortools": "from ortools.graph.python import max_flow",
    "highspy": "import highspy",
}

SOLVE_BOTH = """
import otlp
problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
for solver in ("max-flow", "linear-program"):
    assert abs(otlp.solve(problem, solver).acceptance - 0.85) < 1e-12
"""


ORDERS = [
    pytest.param(order, marks=[pytest.mark.long] * (k % 5 > 0))  # each engine comes first and last
    for k, order in enumerate(permutations(IMPORTS))
]


@pytest.mark.slow  # Each order needs a process that imports all engines (about 2 s).
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_libraries_share_a_process(order: tuple[str, ...]) -> None:
    pytest.importorskip("cvxpy")
    run_python("\n".join(IMPORTS[name] for name in order) + SOLVE_BOTH)
