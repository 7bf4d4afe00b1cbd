"""Results in the order of the tasks, whatever the workers, and whatever becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otlp.errors import InvalidInputError, TaskError
from otlp.sweeps.workers import WINDOW, in_order, worker_count


def squared(number: int) -> int:
    return number * number


def slow_first(number: int) -> int:
    time.sleep(0.02 if number % 3 == 0 else 0.0)
    return number


def deadly(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def failing(number: int) -> int:
    if number == 2:
        raise ArithmeticError("two")
    return number


def test_without_jobs_tasks_run_here_one_at_a_time() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    pids = in_order(lambda _: os.getpid(), tasks())
    assert next(iter(pids)) == os.getpid()
    assert taken == [0]


def test_threads_keep_the_order_and_a_window() -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        while taken < 60:
            taken += 1
            yield taken

    for done, result in enumerate(in_order(slow_first, tasks(), 2, prefer="threads"), 1):
        assert result == done
        assert taken <= done + 2 * WINDOW


@pytest.mark.slow
def test_a_dead_worker_costs_its_own_task_alone() -> None:
    pytest.importorskip("joblib")
    results = list(in_order(deadly, range(8), 2))
    assert isinstance(results[5], TaskError)
    assert "died" in str(results[5])
    del results[5]
    assert results == [0, 1, 4, 9, 16, 36, 49]


WITHOUT_JOBLIB = """
import os, signal, sys
sys.modules["joblib"] = None
from otlp.sweeps.workers import in_order

def deadly(number):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number

if __name__ == "__main__":
    for result in in_order(deadly, range(8), 2):
        print(result if isinstance(result, int) else type(result).__name__)
"""


@pytest.mark.slow
def test_without_joblib_all_is_the_same(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(WITHOUT_JOBLIB)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["0", "1", "4", "9", "16", "TaskError", "36", "49"]


def test_what_the_function_raises_comes_in_its_place() -> None:
    results = in_order(failing, range(5), 2, prefer="threads")
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ArithmeticError, match="two"):
        next(results)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_joblib_decides_where_it_is_configured(backend: str) -> None:
    joblib = pytest.importorskip("joblib")
    with joblib.parallel_config(backend, n_jobs=2):
        assert worker_count() == 2
        results = in_order(squared, range(20))
        assert worker_count(3) == 3
    # the choice was made where the call was, not where its results are read
    assert list(results) == [number * number for number in range(20)]
    assert worker_count() == 1


def test_a_number_of_jobs_alone_is_taken_from_joblib() -> None:
    joblib = pytest.importorskip("joblib")
    with joblib.parallel_config(n_jobs=3):
        assert worker_count() == 3
        assert worker_count(2) == 2


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "2"])
def test_jobs_are_checked_at_once(jobs: object) -> None:
    with pytest.raises(InvalidInputError, match="jobs is"):
        in_order(squared, [1], jobs)  # type: ignore[arg-type]


SCRIPT = """
import itertools, sys, time
from otlp.sweeps.workers import in_order

def work(number):
    time.sleep(0.05)
    return number

if __name__ == "__main__":
    for number in in_order(work, itertools.count(), 2):
        print(number, flush=True)
"""


@pytest.mark.slow
def test_joblib_itself_goes_on_working() -> None:
    joblib = pytest.importorskip("joblib")
    assert list(in_order(squared, range(3), 2)) == [0, 1, 4]
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(squared)(i) for i in range(3)) == [0, 1, 4]
    assert list(in_order(squared, range(3), 2)) == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    assert len(members(process.pid)) >= 3
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.wait(timeout=60)
    for _ in range(100):
        if not members(process.pid):
            return
        time.sleep(0.1)
    pytest.fail(f"still running: {members(process.pid)}")


def members(session: int) -> list[str]:
    """The commands of a session that run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except (OSError, IndexError, ValueError):
            continue
    return found
