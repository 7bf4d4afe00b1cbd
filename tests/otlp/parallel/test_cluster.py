"""The executor of Dask with two worker processes: equal to the byte, and no task is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import otlp
from otlp.errors import ExecutorError, TaskError
from otlp.parallel import workers
from otlp.parallel.rows import CaptureRows, RowSource, SyntheticRows
from otlp.parallel.workers import in_order
from otlp.studies.sweep import Grid, sweep
from tests.otlp.parallel.deadly import deadly

pytestmark = pytest.mark.slow

GRID = Grid(n=[2, 3], rules=["k-seq"])


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    from dask.config import set as configured

    # A busy machine may take longer than the default 15 s to restart a worker.
    patient = {"distributed.deploy.lost-worker-timeout": "10 minutes"}
    with (
        configured({**patient, "distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor(pure=False)


@pytest.mark.parametrize(
    "rows",
    [SyntheticRows(200, 1000), CaptureRows(otlp.captures.builtin(), range(0, 160, 4))],
    ids=["made up", "captured"],
)
def test_a_sweep_is_the_same_to_the_byte(
    rows: RowSource, executor: Executor, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert sweep(rows, GRID, here) == sweep(rows, GRID, there, jobs=2, executor=executor)
    assert there.read_bytes() == here.read_bytes()


def test_a_task_that_kills_every_worker_costs_itself_alone(executor: Executor) -> None:
    results = list(in_order(deadly, range(12), executor=executor))
    assert isinstance(results[5], TaskError)
    del results[5]
    assert results == [number * number for number in range(12) if number != 5]


class LosesAStatus(ThreadPoolExecutor):
    """Fails like the Dask executor if a worker exits just after the result was fetched."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        future = super().submit(function, *args, **options)
        if args == (3,):
            future = Future()
            future.set_exception(TypeError("cannot unpack non-iterable int object"))
        return future


def test_a_result_whose_status_is_lost_is_computed_again() -> None:
    pytest.importorskip("distributed")
    with LosesAStatus(2) as executor:
        assert list(in_order(abs, range(6), executor=executor)) == list(range(6))


def test_a_type_error_of_the_function_is_raised(executor: Executor) -> None:
    with pytest.raises(TypeError, match="bad operand"):
        list(in_order(abs, [1, "one"], executor=executor))


def test_a_cluster_without_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "FIRST_RESULT_TIMEOUT", 0.5)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        distributed.Client(empty) as client,
        pytest.raises(ExecutorError, match=r"no task in 0\.5 s"),
    ):
        list(in_order(abs, range(3), executor=client.get_executor(pure=False)))
