"""Tasks in, results out: in order, a few at a time, here, in workers or in any executor."""

from __future__ import annotations

import os
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from sys import modules
from threading import Thread
from typing import Any, Literal, TypeVar

from otlp.checks import whole_number
from otlp.errors import ExecutorError, InvalidInputError, TaskError

Task = TypeVar("Task")
Result = TypeVar("Result")

WINDOW = 4
"""Tasks in flight a worker: submitted, and their results not yet asked for."""

THREAD_WINDOW = 2
"""The same of threads: nothing is pickled, and waiting tasks are in memory, not in the cache."""

MOST_JOBS = 1024
"""Workers on one machine."""

FIRST_RESULT_TIMEOUT = 120.0
"""Seconds that an executor has for the first result, by which it is checked."""


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    jobs: int | None = None,
    *,
    executor: Executor | None = None,
    prefer: Literal["processes", "threads"] = "processes",
) -> Iterator[Result | TaskError]:
    """Apply a function to tasks side by side.

    Parameters
    ----------
    function : callable
        Of one task; must survive pickling, and give the same however often it runs.
    tasks : iterable
        Taken from as results are asked for, never more than a window ahead.
    jobs : int, optional
        Workers on this machine, by default 1, which is this process itself.  Beside an executor:
        how many workers it has, by default as many as this machine has cores.  A daemonic process
        may start none, and does all itself, with a warning.
    executor : concurrent.futures.Executor, optional
        Does the tasks in place of workers of our own, and is left running: processes, threads,
        ``dask.distributed.Client(...).get_executor(pure=False)``, those of loky and mpi4py.
    prefer : {"processes", "threads"}
        The kind of workers, without an executor.

    Yields
    ------
    Result or TaskError
        One for each task, in the order of the tasks.  A `TaskError` stands for the task that a
        worker died of; what was under way beside it is run again, one by one, in a process of
        this machine.

    Raises
    ------
    InvalidInputError
        If `jobs` is no whole number from 1 to 1,024, `executor` is none, or a task cannot be sent.
    ExecutorError
        If the executor does nothing in 120 s, has another version of otlp, was shut down, or ended
        with a worker that it lost before all was done.
    Exception
        Whatever the function raises, at the place of its task.

    Notes
    -----
    A generator that is closed or interrupted ends its workers; of an executor it cancels what has
    not begun.
    """
    if in_this_process(jobs, executor):
        return map(function, tasks)
    if executor is not None:
        return _in_executor(executor, function, tasks, WINDOW * (jobs or os.cpu_count() or 1))
    assert jobs is not None
    if prefer == "threads":
        return _in_threads(function, tasks, jobs)
    if current_process().daemon:
        warnings.warn(
            f"jobs is {jobs}, and this process is a daemonic one, such as a worker of a "
            "DataLoader, of a pool or of Dask, which may start no others: all tasks are done here",
            stacklevel=2,
        )
        return map(function, tasks)
    return _in_processes(function, tasks, jobs)


def in_this_process(jobs: int | None = None, executor: Executor | None = None) -> bool:
    """Whether `in_order` runs the tasks itself, one after the other; see there."""
    if jobs is not None and whole_number(jobs, "jobs") > MOST_JOBS:
        raise InvalidInputError(f"jobs is {jobs}: at most {MOST_JOBS:,} workers are started")
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidInputError(
            f"executor is a {type(executor).__name__}: it must be a concurrent.futures.Executor, "
            "such as ProcessPoolExecutor(4), or what get_executor() of a Dask client returns"
        )
    return executor is None and (jobs or 1) == 1


def _in_threads(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int
) -> Iterator[Result | TaskError]:
    with ThreadPoolExecutor(jobs) as executor:
        yield from _in_window(executor, function, iter(tasks), deque(), THREAD_WINDOW * jobs)


def _in_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int
) -> Iterator[Result | TaskError]:
    remaining, waiting = iter(tasks), deque[Task]()
    while True:
        try:
            with _processes(jobs) as executor:
                yield from _in_window(executor, function, remaining, waiting, WINDOW * jobs)
                return
        except BrokenExecutor:
            pass
        yield from one_by_one(function, waiting)
        waiting.clear()


def _in_executor(
    executor: Executor, function: Callable[[Task], Result], tasks: Iterable[Task], window: int
) -> Iterator[Result | TaskError]:
    _check_executor(executor)
    remaining, waiting = iter(tasks), deque[Task]()
    try:
        yield from _in_window(executor, function, remaining, waiting, window)
    except BrokenExecutor as error:
        yield from one_by_one(function, waiting)
        for _ in remaining:
            raise ExecutorError(
                f"the executor lost a worker and takes no more ({_first_sentence(error)}): go on "
                "with a new one, or with jobs, which starts workers again; a journal keeps what is "
                "done"
            ) from error


def _in_window(
    executor: Executor,
    function: Callable[[Task], Result],
    remaining: Iterator[Task],
    waiting: deque[Task],
    window: int,
) -> Iterator[Result | TaskError]:
    """Results in order, a sliding window ahead; `waiting` has the tasks that are in flight."""
    futures: deque[Future[Result]] = deque()
    try:
        for task in remaining:
            waiting.append(task)
            futures.append(_submitted(executor, function, task))
            if len(futures) == window:
                yield from _first_result(futures, waiting, function)
        while futures:
            yield from _first_result(futures, waiting, function)
    finally:
        for future in futures:
            future.cancel()


def _first_result(
    futures: deque[Future[Result]], waiting: deque[Task], function: Callable[[Task], Result]
) -> Iterator[Result | TaskError]:
    """The result of the first task; where workers of a cluster died of it, it is retried here."""
    try:
        result = futures.popleft().result()
    except BrokenExecutor:
        raise
    except _lost_worker_errors():
        yield from one_by_one(function, [waiting.popleft()])
    except CancelledError as error:
        raise ExecutorError(
            "the executor was shut down with tasks to do: go on with a new one; a journal keeps "
            "what is done"
        ) from error
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _check_pickles(function, waiting[0], error)
        raise
    else:
        waiting.popleft()
        yield result


def _submitted(
    executor: Executor, function: Callable[[Task], Result], task: Task
) -> Future[Result]:
    try:
        if isinstance(executor, ProcessPoolExecutor):
            # a worker of it dies of a task that it cannot read, and says nothing
            return executor.submit(_unpickle_and_run, pickle.dumps((function, task)))
        return executor.submit(function, task)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise ExecutorError(
            f"the executor takes no task ({_first_sentence(error)}): give one that runs"
        ) from error
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _check_pickles(function, task, error)
        raise


def _unpickle_and_run(content: bytes) -> Any:
    """In a worker: run a pickled task, or say why it cannot be unpickled there."""
    try:
        function, task = pickle.loads(content)
    except Exception as error:
        raise InvalidInputError(
            f"a task cannot be read in another process ({type(error).__name__}: {error}): what is "
            "defined in a notebook, or in the guarded part of a script, must stand in a module "
            "that it imports; or leave jobs out"
        ) from error
    return function(task)


def _check_pickles(function: Any, task: Any, found: Exception) -> None:
    """Tell an error of the function from that of a task that cannot be sent."""
    try:
        pickle.dumps((function, task))
    except Exception as error:
        raise InvalidInputError(
            f"a task cannot be sent to another process ({error}): make it of what modules define, "
            "or give a ThreadPoolExecutor"
        ) from found


def _check_executor(executor: Executor) -> None:
    """Check that an executor runs a task, and has this version of otlp.

    Raises
    ------
    ExecutorError
        If not.
    """
    here = version("otlp")
    try:
        future = _submitted(executor, version, "otlp")
        there = future.result(FIRST_RESULT_TIMEOUT)
    except TimeoutError:
        future.cancel()
        raise ExecutorError(
            f"the executor has done nothing in {FIRST_RESULT_TIMEOUT:g} s: start workers for it, "
            "or wait until they are free"
        ) from None
    except BrokenExecutor as error:
        raise ExecutorError(
            f"the executor is broken, or its workers die at once ({_first_sentence(error)}): give "
            'a new one; a script needs `if __name__ == "__main__":` around the call'
        ) from error
    except (CancelledError, ImportError) as error:
        raise ExecutorError(
            f"the executor cannot run otlp ({type(error).__name__} {error}): install otlp {here} "
            "where its workers are, and give one that runs"
        ) from error
    if there != here:
        raise ExecutorError(
            f"the executor's workers have otlp {there}, and this is {here}: install the same "
            "on every machine"
        )


def one_by_one(
    function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result | TaskError]:
    """Retry tasks that a worker died of in isolation, to tell which it was; see `in_order`.

    In a process of this machine beside this one, wherever the others are run; a daemonic process
    may start none, and gives a `TaskError` for each.
    """
    waiting = deque(tasks)
    if current_process().daemon:
        for _ in waiting:
            yield TaskError("its worker died, and a daemonic process starts no other to try again")
        return
    while waiting:
        done = 0
        reason = ""
        try:
            with _processes(1) as executor:
                while waiting:
                    result = _submitted(executor, function, waiting[0]).result()
                    waiting.popleft()
                    done += 1
                    yield result
        except BrokenExecutor as error:
            reason = _first_sentence(error)
        # what was done before in that process may have been the cause
        if reason and not done:
            waiting.popleft()
            yield TaskError(f"its worker died of it ({reason})")


def _lost_worker_errors() -> tuple[type[Exception], ...]:
    """Errors that an executor which outlives its workers may raise after a worker has died."""
    distributed = modules.get("distributed")
    # Dask's executor raises TypeError if a worker dies between its result and the status of it.
    # A TypeError of the function itself is raised again by the retry.
    return () if distributed is None else (distributed.KilledWorker, TypeError)


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0]


class _RecordingContext(SpawnContext):
    """Spawns processes and records them: shutting an executor down does not stop a busy worker.

    Not forked ones: locks that other threads hold, such as those of engines, stay held in a child.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Make a process."""
        self.started.append(SpawnProcess(*args, **kwargs))
        return self.started[-1]


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Processes that nothing ran in before; they end with the block, or with this process."""
    context = _RecordingContext()
    executor = ProcessPoolExecutor(workers, context, _end_with_parent)
    try:
        _check_executor(executor)
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in context.started:
            if process.is_alive():
                process.terminate()
        raise
    executor.shutdown()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
