"""Apply a function to tasks in parallel, with results in order and a bounded number in flight."""

from __future__ import annotations

import os
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
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
"""Number of tasks in flight per worker: submitted, with results not yet consumed."""

THREAD_WINDOW = 2
"""Number of tasks in flight per thread, lower because threads need no pickling."""

MOST_JOBS = 1024
"""Maximum number of workers on one machine."""

FIRST_RESULT_TIMEOUT = 120.0
"""Seconds within which an executor must complete the first task, which checks the executor."""


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    jobs: int | None = None,
    *,
    executor: Executor | None = None,
    prefer: Literal["processes", "threads"] = "processes",
) -> Iterator[Result | TaskError]:
    """Apply a function to tasks in parallel.

    Parameters
    ----------
    function : callable
        Function of one task; must be picklable and return the same result if it is run again.
    tasks : iterable
        Tasks, consumed as results are consumed, at most one window ahead.
    jobs : int, optional
        Number of workers on this machine, by default 1, which is this process.  With `executor`,
        the number of workers of the executor, by default the number of cores of this machine.  A
        daemonic process cannot start workers and runs all tasks itself, with a warning.
    executor : concurrent.futures.Executor, optional
        Executor to use instead of workers on this machine; it is not shut down.  Processes,
        threads, ``dask.distributed.Client(...).get_executor(pure=False)``, loky and mpi4py
        executors are supported.
    prefer : {"processes", "threads"}
        Type of the workers, without an executor.

    Yields
    ------
    Result or TaskError
        One result per task, in the order of the tasks.  The result is a `TaskError` if the task
        caused the death of its worker.  Other tasks in flight at that time are run again, one by
        one, in a process on this machine.

    Raises
    ------
    InvalidInputError
        If `jobs` is not an integer from 1 to 1,024, `executor` is not an executor, or a task cannot
        be sent.
    ExecutorError
        If the executor completes no task within 120 s, has another version of otlp, was shut down,
        or lost a worker and accepts no more tasks.
    Exception
        Any exception of the function, raised at the position of its task.

    Notes
    -----
    Closing or interrupting the generator ends its workers; in an executor it cancels tasks that
    have not started.
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
            f"jobs is ignored, got {jobs}: a daemonic process, such as a worker of a DataLoader, "
            "a pool or Dask, cannot start processes; all tasks are run in this process",
            stacklevel=2,
        )
        return map(function, tasks)
    return _in_processes(function, tasks, jobs)


def in_this_process(jobs: int | None = None, executor: Executor | None = None) -> bool:
    """Return whether `in_order` runs the tasks in this process, sequentially."""
    if jobs is not None and whole_number(jobs, "jobs") > MOST_JOBS:
        raise InvalidInputError(f"jobs must be at most {MOST_JOBS:,}, got {jobs}")
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidInputError(
            "executor must be a concurrent.futures.Executor, such as ProcessPoolExecutor(4) or "
            f"the result of get_executor() of a Dask client, got {type(executor).__name__}"
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
                f"the executor lost a worker and accepts no more tasks ({_first_sentence(error)}); "
                "continue with a new executor, or with jobs, which restarts workers; a journal "
                "keeps finished rows"
            ) from error


def _in_window(
    executor: Executor,
    function: Callable[[Task], Result],
    remaining: Iterator[Task],
    waiting: deque[Task],
    window: int,
) -> Iterator[Result | TaskError]:
    """Yield results in order, with a sliding window of tasks in flight, kept in `waiting`."""
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
    """Yield the result of the first task; if it killed workers of a cluster, retry it here."""
    try:
        result = futures.popleft().result()
    except BrokenExecutor:
        raise
    except _lost_worker_errors():
        yield from one_by_one(function, [waiting.popleft()])
    except CancelledError as error:
        raise ExecutorError(
            "the executor was shut down before all tasks were done; continue with a new executor; "
            "a journal keeps finished rows"
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
        if isinstance(executor, futures.ProcessPoolExecutor):
            # A worker that cannot unpickle a task dies without a message.
            return executor.submit(_unpickle_and_run, pickle.dumps((function, task)))
        return executor.submit(function, task)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise ExecutorError(
            f"the executor accepts no task ({_first_sentence(error)}); pass a running executor"
        ) from error
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _check_pickles(function, task, error)
        raise


def _unpickle_and_run(content: bytes) -> Any:
    """Run a pickled task in a worker, or raise InvalidInputError if it cannot be unpickled."""
    try:
        function, task = pickle.loads(content)
    except Exception as error:
        raise InvalidInputError(
            f"a task cannot be read in another process ({type(error).__name__}: {error}); move "
            "definitions from a notebook, or from the guarded part of a script, to a module, and "
            "import them; or leave jobs out"
        ) from error
    return function(task)


def _check_pickles(function: Any, task: Any, found: Exception) -> None:
    """Raise InvalidInputError if the task cannot be pickled; otherwise the function failed."""
    try:
        pickle.dumps((function, task))
    except Exception as error:
        raise InvalidInputError(
            f"a task cannot be sent to another process ({error}); use only objects defined in "
            "modules, or pass a ThreadPoolExecutor"
        ) from found


def _check_executor(executor: Executor) -> None:
    """Check that an executor runs a task and has the same version of otlp.

    Raises
    ------
    ExecutorError
        If the executor does not run a task, or has another version.
    """
    # Imported here, as the process pools are, because the import takes milliseconds.
    from importlib.metadata import version

    here = version("otlp")
    try:
        future = _submitted(executor, version, "otlp")
        there = future.result(FIRST_RESULT_TIMEOUT)
    except TimeoutError:
        future.cancel()
        raise ExecutorError(
            f"the executor has completed no task in {FIRST_RESULT_TIMEOUT:g} s; start workers, or "
            "wait until workers are free"
        ) from None
    except BrokenExecutor as error:
        raise ExecutorError(
            f"the executor is broken, or its workers die at once ({_first_sentence(error)}); pass "
            'a new executor; a script needs `if __name__ == "__main__":` around the call'
        ) from error
    except (CancelledError, ImportError) as error:
        raise ExecutorError(
            f"the executor cannot run otlp ({type(error).__name__} {error}); install otlp {here} "
            "for its workers, and pass a running executor"
        ) from error
    if there != here:
        raise ExecutorError(
            f"the workers of the executor must have otlp {here}, got {there}; install the same "
            "version on every machine"
        )


def one_by_one(
    function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result | TaskError]:
    """Retry tasks in isolation after a worker died, to find the task that is the cause.

    The tasks are run in another process on this machine, also if an executor is used.  A daemonic
    process cannot start processes and yields a `TaskError` for each task.
    """
    waiting = deque(tasks)
    if current_process().daemon:
        for _ in waiting:
            yield TaskError("its worker died, and a daemonic process cannot start another")
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
        # If the process had run other tasks before, they may be the cause, so retry in a new one.
        if reason and not done:
            waiting.popleft()
            yield TaskError(f"its worker died running it ({reason})")


def _lost_worker_errors() -> tuple[type[Exception], ...]:
    """Return the errors that an executor may raise if it survives the death of a worker."""
    distributed = modules.get("distributed")
    # The executor of Dask raises TypeError if a worker dies after its result but before the status
    # of the result.  A TypeError of the function is raised again by the retry.
    return () if distributed is None else (distributed.KilledWorker, TypeError)


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0]


class _RecordingContext(SpawnContext):
    """A context that records spawned processes, because shutdown does not stop busy workers.

    Processes are not forked, since a lock held by another thread would stay locked in the child.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Create and record a process."""
        self.started.append(SpawnProcess(*args, **kwargs))
        return self.started[-1]


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Context manager for an executor of new processes; they end with the block or this process."""
    context = _RecordingContext()
    executor = futures.ProcessPoolExecutor(workers, context, _end_with_parent)
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
