"""Solving in threads, after a fork, and in spawned processes."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import otlp
from otlp.cli import main
from otlp.parallel.rows import SyntheticRows
from otlp.studies.sweep import Grid, sweep
from tests.instances import check_solution

SOLVERS = ("martingale", "max-flow", "linear-program", "slackness", "orderings")
THREADS = 4


def problem(seed: int, tokens: int = 6, n: int = 2) -> otlp.Problem:
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.ones(tokens), size=2)
    return otlp.Problem(target, otlp.IID(draft, n))


def solved(seed: int, solver: str = "martingale") -> float:
    return otlp.solve(problem(seed), solver).acceptance


@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_on_one_problem(solver: str) -> None:
    shared = problem(1)
    begin = threading.Barrier(THREADS)

    def solve(_: int) -> otlp.Solution:
        begin.wait()
        return otlp.solve(shared, solver)

    with ThreadPoolExecutor(THREADS) as pool:
        solutions = list(pool.map(solve, range(THREADS)))
    for solution in solutions:
        check_solution(solution)
        assert solution.acceptance == pytest.approx(solved(1), abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_on_problems_of_their_own(solver: str) -> None:
    seeds = range(5 * THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(solved, seeds, [solver] * len(seeds)))
    np.testing.assert_allclose(found, [solved(seed) for seed in seeds], rtol=0.0, atol=1e-6)


def test_threads_share_one_plan() -> None:
    plan = otlp.solve(problem(3)).plan
    tuples = plan.problem.drafts.enumerate_tuples().tokens
    alone = [plan.conditional(row) for row in tuples]
    fresh = otlp.solve(problem(3)).plan
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(fresh.conditional, tuples))
    np.testing.assert_array_equal(together, alone)


def test_a_time_limit_stops_no_flow_but_its_own() -> None:
    slow, quick = problem(0, tokens=120, n=3), problem(1, tokens=40)
    done = threading.Event()

    def unlimited() -> set[otlp.Status]:
        found = set()
        while not done.is_set():
            found.add(otlp.solve(quick, "max-flow", throw=False).status)
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        others = [pool.submit(unlimited) for _ in range(THREADS - 1)]
        for _ in range(2):
            stopped = otlp.solve(slow, "max-flow", time_limit=0.02, throw=False)
            assert stopped.status is otlp.Status.TIME_LIMIT
        done.set()
        assert [future.result() for future in others] == [{otlp.Status.SOLVED}] * len(others)


@pytest.mark.parametrize(
    ("method", "solver"),
    [
        *(("fork", solver) for solver in ("max-flow", "linear-program", "martingale")),
        ("spawn", "max-flow"),
    ],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes(method: str, solver: str) -> None:
    solved(0), solved(0, solver)  # the parent's engines are running
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1 if method == "spawn" else 2, mp_context=context) as pool:
        found = list(pool.map(solved, range(6), [solver] * 6))
    np.testing.assert_allclose(found, [solved(seed) for seed in range(6)], rtol=0.0, atol=1e-6)
    assert solved(0, solver) == pytest.approx(solved(0), abs=1e-6)


def many(seed: int) -> tuple[list[float], str]:
    """Return acceptances of problems with two workers, and the warnings."""
    problems = [problem(seed + row) for row in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = otlp.solve_many(problems, "slackness", jobs=2, chunk=1)
        found = [row.acceptance for row in rows]
    return found, " ".join(str(one.message) for one in caught)


def swept(seed: int) -> tuple[list[float], str]:
    source = SyntheticRows(2, 1000, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        points = sweep(source, Grid((1, 2), rules=("k-seq",)), jobs=2)
    return [one.acceptance.mean for one in points], " ".join(str(one.message) for one in caught)


def captured(seed: int) -> tuple[list[float], str]:
    report = otlp.audit(otlp.solve(problem(seed)).plan, problem(seed).target, problem(seed).drafts)
    p, q = otlp.captures.builtin().distributions(seed)
    return [report.total_variation, float(p[0]), float(q[0])], ""


def in_a_daemon(method: str, work: Callable[[int], Any]) -> Any:
    with multiprocessing.get_context(method).Pool(1) as pool:  # its workers are daemonic
        return pool.apply(work, (0,))


def in_a_thread(work: Callable[[int], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, 0).result()


def in_a_loader(work: Callable[[int], Any]) -> Any:
    pytest.importorskip("torch", reason="needs torch: pip install -e .[torch]")
    from torch.utils.data import DataLoader

    class Data(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return work(index)

    return next(iter(DataLoader(Data([0]), num_workers=1, collate_fn=list)))[0]


PLACES = {
    "a daemonic process, spawned": partial(in_a_daemon, "spawn"),
    "a daemonic process, forked": partial(in_a_daemon, "fork"),
    "a thread": in_a_thread,
    "a worker of a DataLoader": in_a_loader,
}


@pytest.mark.slow
@pytest.mark.parametrize("work", [many, swept, captured])
@pytest.mark.parametrize("place", PLACES)
def test_workers_inside_workers(place: str, work: Callable[[int], Any]) -> None:
    """Equal numbers with fewer processes if none may be started, with a warning."""
    other = threading.Event()
    running = threading.Thread(target=other.wait)
    running.start()  # the process forks while threads are running
    try:
        found, printed = PLACES[place](work)
    finally:
        other.set()
        running.join()
    wanted, _ = work(0)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-12)
    alone = place != "a thread" and work is not captured
    assert ("all tasks are run in this process" in printed) == alone


def benched(_: int) -> tuple[int, str]:
    words = "bench --rows 1 --top-k 10 --n 2 --solvers martingale,k-seq"
    found = CliRunner().invoke(main, words.split())
    return found.exit_code, found.output


@pytest.mark.slow
def test_bench_in_a_daemonic_process() -> None:
    """No child process can be started, so one process loads all kernels."""
    code, printed = in_a_daemon("spawn", benched)
    assert code == 0 and "martingale" in printed, printed
