"""Results are in the order of the tasks, for any workers and worker failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from otlp.errors import ExecutorError, InvalidInputError, TaskError
from otlp.parallel import workers
from otlp.parallel.workers import WINDOW, in_order
from tests.otlp.parallel.deadly import deadly
from tests.processes import members


def squared(number: int) -> int:
    return number * number


def slow_first(number: int) -> int:
    time.sleep(0.02 if number % 3 == 0 else 0.0)
    return number


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
    results = list(in_order(deadly, range(8), 2))
    assert isinstance(results[5], TaskError)
    assert "died" in str(results[5])
    del results[5]
    assert results == [0, 1, 4, 9, 16, 36, 49]


def standard() -> Executor:
    return ProcessPoolExecutor(2, get_context("spawn"))


def loky() -> Executor:
    made: Executor = pytest.importorskip("loky").ProcessPoolExecutor(2)
    return made


PROCESSES = [pytest.param(made, marks=pytest.mark.slow) for made in (standard, loky)]


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), *PROCESSES])
def test_any_executor_does_the_tasks_and_goes_on(make: Callable[[], Executor]) -> None:
    with make() as executor:
        for jobs in (None, 1, 3):
            found = in_order(squared, range(20), jobs, executor=executor)
            assert list(found) == [number * number for number in range(20)]
        left = in_order(slow_first, range(20), executor=executor)
        assert next(left) == 0
        del left
        assert executor.submit(squared, 3).result() == 9


@pytest.mark.parametrize("make", PROCESSES)
def test_an_executor_that_loses_a_worker_names_the_task_and_its_end(
    make: Callable[[], Executor],
) -> None:
    with make() as executor:
        found = []
        with pytest.raises(ExecutorError, match=r"lost a worker .*new executor, or with jobs"):
            for result in in_order(deadly, range(100), 2, executor=executor):
                found.append(result)
        # Started tasks are complete, so that work continues after the task that killed a worker.
        assert isinstance(found[5], TaskError)
        assert 8 <= len(found) < 100
        with pytest.raises(ExecutorError, match=r"executor is broken"):
            list(in_order(squared, range(3), executor=executor))
    with make() as executor:  # All tasks were started: no task remains to be refused.
        found = list(in_order(deadly, range(8), 2, executor=executor))
    assert [type(result) for result in found] == [int] * 5 + [TaskError] + [int] * 2


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), *PROCESSES])
def test_an_executor_that_is_shut_down_is_refused(make: Callable[[], Executor]) -> None:
    executor = make()
    executor.shutdown()
    with pytest.raises(ExecutorError, match="accepts no task"):
        list(in_order(squared, range(3), executor=executor))


def test_an_executor_that_is_shut_down_on_the_way_says_so() -> None:
    executor = ThreadPoolExecutor(1)
    results = in_order(slow_first, range(100), 1, executor=executor)
    assert next(results) == 0
    executor.shutdown(wait=True, cancel_futures=True)
    with pytest.raises(ExecutorError, match=r"shut down|accepts no task"):
        list(results)


class Unreadable:
    """An object that can be pickled but not unpickled, like a class defined in a notebook."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


@pytest.mark.parametrize("make", [standard, None])
def test_a_task_that_no_worker_can_read_says_so(make: Callable[[], Executor] | None) -> None:
    executor = make() if make else None
    with pytest.raises(InvalidInputError, match=r"cannot be read .*no number.* to a module"):
        list(in_order(id, [Unreadable()] * 3, 2, executor=executor))
    if executor is not None:
        executor.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("make", [standard, None])
def test_what_cannot_be_sent_is_told_from_an_error_of_the_function(
    make: Callable[[], Executor] | None,
) -> None:
    executor = make() if make else None
    with pytest.raises(InvalidInputError, match=r"cannot be sent .* ThreadPoolExecutor"):
        list(in_order(lambda number: number, range(3), 2, executor=executor))
    with pytest.raises(TypeError, match="has no len"):
        list(in_order(len, range(3), 2, executor=executor))
    if executor is not None:
        executor.shutdown()


def test_an_executor_that_does_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_RESULT_TIMEOUT", 0.1)
    with ThreadPoolExecutor(1) as busy:
        busy.submit(time.sleep, 0.5)
        with pytest.raises(ExecutorError, match=r"no task in 0\.1 s"):
            list(in_order(squared, range(3), executor=busy))


@pytest.mark.parametrize("executor", [2, "dask", ThreadPoolExecutor])
def test_what_is_no_executor_is_refused_at_once(executor: object) -> None:
    with pytest.raises(InvalidInputError, match="executor must be a "):
        in_order(squared, [1], executor=executor)


def test_what_the_function_raises_comes_in_its_place() -> None:
    results = in_order(failing, range(5), 2, prefer="threads")
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ArithmeticError, match="two"):
        next(results)


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "2"])
def test_jobs_are_checked_at_once(jobs: object) -> None:
    with pytest.raises(InvalidInputError, match="jobs must be"):
        in_order(squared, [1], jobs)


SCRIPT = """
import itertools, signal, sys, time
from otlp.parallel.workers import in_order

def work(number):
    time.sleep(0.05)
    return number

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    for number in in_order(work, itertools.count(), 2):
        print(number, flush=True)
"""


UNGUARDED = """
from otlp.parallel.workers import in_order
print(list(in_order(abs, range(3), 2)))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert 'needs `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_and_a_kill_leave_no_process(end: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(SCRIPT)
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, script], start_new_session=True, **quiet)
    for _ in range(5):
        process.stdout.readline()
    assert len(members(process.pid)) >= 3
    for _ in range(12):  # A Ctrl-C during a finaliser is lost, so send it again.
        os.kill(process.pid, end)  # a terminal would send it to the group
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            break
    assert process.returncode is not None
    for _ in range(50):
        if not members(process.pid):
            return
        time.sleep(0.1)
    pytest.fail(f"still running: {members(process.pid)}")
