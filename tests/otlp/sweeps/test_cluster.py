"""A real Dask cluster of two worker processes: the same to the bit, and no row is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import otlp
from otlp.data.spread_rows import spread_rows
from otlp.errors import EngineNotFoundError, SchedulerError, TaskError
from otlp.studies.sweep import Grid, sweep
from otlp.sweeps import cluster as clusters
from otlp.sweeps.cluster import on_scheduler
from otlp.sweeps.rows import CaptureRows, SyntheticRows
from otlp.sweeps.workers import in_order
from tests.otlp.cli.command import run
from tests.otlp.sweeps.test_workers import deadly

ROWS = SyntheticRows(200, 1000)
GRID = Grid(n=[2, 3], rules=["k-seq"])


def test_a_scheduler_that_is_not_there_is_refused_with_its_address() -> None:
    pytest.importorskip("distributed")
    for address in ("nowhere", "tcp://127.0.0.1:1"):
        with pytest.raises(SchedulerError, match=address), on_scheduler(address):
            pytest.fail("there is none")


@pytest.mark.slow
def test_what_is_no_scheduler_is_refused() -> None:
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(SchedulerError, match="timed out"), on_scheduler(address):
            pytest.fail("it is none")


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EngineNotFoundError, match=r"\.\[sweep\]"), on_scheduler("tcp://x:1"):
        pytest.fail("there is none")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    from dask.config import set as configured

    # a busy machine may take longer than the usual 15 s to start a worker again
    patient = {"distributed.deploy.lost-worker-timeout": "10 minutes"}
    with (
        configured({**patient, "distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    journal = tmp_path_factory.mktemp("alone") / "j.jsonl"
    sweep(ROWS, GRID, journal)
    return journal.read_bytes()


@pytest.mark.slow
def test_a_sweep_is_the_same_to_the_byte(cluster: Any, alone: bytes, tmp_path: Path) -> None:
    with on_scheduler(cluster.scheduler_address) as (executor, workers):
        assert workers == 2
        sweep(ROWS, GRID, tmp_path / "j.jsonl", jobs=workers, executor=executor)
    assert (tmp_path / "j.jsonl").read_bytes() == alone


@pytest.mark.slow
def test_a_sweep_of_a_capture_is_the_same(cluster: Any) -> None:
    rows = CaptureRows(otlp.captures.builtin(), range(0, 160, 4))
    here = sweep(rows, GRID)
    with on_scheduler(cluster.scheduler_address) as (executor, _):
        assert sweep(rows, GRID, executor=executor) == here


@pytest.mark.slow
def test_commands_send_their_rows_there(cluster: Any, tmp_path: Path) -> None:
    words = ["compare", "--rows", "3", "--n", "2", "--rules", "k-seq", "--schemes", "iid", "--json"]
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    assert run(*words, files[0]).exit_code == 0
    words += [str(files[1]), "--scheduler", cluster.scheduler_address]
    assert run(*words).exit_code == 0
    here, there = (json.loads(file.read_text()) for file in files)
    assert here["results"] == there["results"]
    words = "bench --rows 3 --n 2 --top-k 10 --solvers martingale,max-flow".split()
    words += ["--scheduler", cluster.scheduler_address, "--json", str(files[0])]
    result = run(*words)
    assert "at the same time" in result.output
    for cell in json.loads(files[0].read_text())["cells"]:
        assert cell["solved"] == 3
        assert [solve["row"] for solve in cell["solves"]] == spread_rows(160, 3)


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_row(cluster: Any, alone: bytes, tmp_path: Path) -> None:
    victims = [worker.pid for worker in cluster.workers.values()]

    def progress(words: str, done: int) -> None:
        if done > 100 and victims:
            os.kill(victims.pop(), signal.SIGKILL)
            victims.clear()

    with on_scheduler(cluster.scheduler_address) as (executor, _):
        sweep(ROWS, GRID, tmp_path / "j.jsonl", executor=executor, progress=progress)
    assert not victims
    assert (tmp_path / "j.jsonl").read_bytes() == alone


@pytest.mark.slow
def test_a_task_that_kills_every_worker_costs_itself_alone(cluster: Any) -> None:
    with on_scheduler(cluster.scheduler_address) as (executor, _):
        results = list(in_order(deadly, range(12), executor=executor))
    assert isinstance(results[5], TaskError)
    del results[5]
    assert results == [number * number for number in range(12) if number != 5]


@pytest.mark.slow
def test_workers_that_stay_away_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "PATIENCE", 0.5)
    monkeypatch.setattr(clusters, "LOOK", 0.1)
    found = []
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as leaving,
        pytest.raises(SchedulerError, match="no workers for"),
        on_scheduler(leaving.scheduler_address) as (executor, _),
    ):
        for number in in_order(abs, range(100), 1, executor=executor):
            found.append(number)
            if number == 3:
                leaving.scale(0)
    assert found == list(range(len(found)))
    assert 4 <= len(found) < 100


@pytest.mark.slow
def test_a_scheduler_without_workers_is_refused() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(SchedulerError, match="no workers"),
        on_scheduler(empty.scheduler_address),
    ):
        pytest.fail("nothing can run")
