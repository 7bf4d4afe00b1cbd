"""Tasks in, results out: in order, a few at a time, in whatever workers there are.

Where the workers are is said outside of this package: `joblib.parallel_config` sends the tasks to
its backend, such as a Dask cluster.  Without one they stay on this machine.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

from otlp.checks import whole_number
from otlp.errors import InvalidInputError, TaskError

Task = TypeVar("Task")
Result = TypeVar("Result")
Pool = Callable[[int], AbstractContextManager[Executor]]

WINDOW = 4
"""Tasks a worker that are under way, or done and not yet asked for."""

THREAD_WINDOW = 2
"""The same of threads: nothing is on its way, and what waits is in memory, not in the cache."""

MOST_JOBS = 1024
"""Workers on one machine."""

IDLE_SECONDS = 60.0
"""After which a process that waits for the next sweep ends."""


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    jobs: int | None = None,
    *,
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
        Workers on this machine; 1 is this process itself.  By default those of
        `joblib.parallel_config` where it is used, else 1.  A Dask cluster has its own number.
    prefer : {"processes", "threads"}
        The kind of workers, unless `joblib.parallel_config` names its backend.

    Yields
    ------
    Result or TaskError
        One for each task, in the order of the tasks.  A `TaskError` stands for the task that a
        worker died of; what was under way beside it is run again, one by one.  A task that killed
        several workers of a cluster is tried once more in a process of this machine.

    Raises
    ------
    InvalidInputError
        If `jobs` is no whole number from 1 to 1,024.
    SchedulerError
        If all workers of a cluster have been away for 120 s.
    Exception
        Whatever the function raises, at the place of its task.

    Notes
    -----
    A generator that is closed or interrupted ends its workers.
    """
    workers = worker_count(jobs)
    backend, configured = _configured()
    if hasattr(backend, "client"):
        from otlp.sweeps.cluster_workers import Cluster, watched

        pool = partial(watched, Cluster(backend.client))
        return _side_by_side(pool, function, tasks, workers, WINDOW)
    if backend is not None:
        from joblib import Parallel

        return _rounds(Parallel(n_jobs=jobs or configured), function, tasks, workers)
    if workers == 1:
        return map(function, tasks)
    if prefer == "threads":
        return _side_by_side(_threads, function, tasks, workers, THREAD_WINDOW)
    return _side_by_side(_processes, function, tasks, workers, WINDOW)


def worker_count(jobs: int | None = None) -> int:
    """How many tasks `in_order` runs at a time; see there."""
    if jobs is not None and whole_number(jobs, "jobs") > MOST_JOBS:
        raise InvalidInputError(f"jobs is {jobs}: at most {MOST_JOBS:,} workers are started")
    backend, configured = _configured()
    if backend is None:
        return jobs or configured
    return max(1, int(backend.effective_n_jobs(jobs or configured)))


def in_this_process(jobs: int | None = None) -> bool:
    """Whether `in_order` runs the tasks itself, one after the other; see there."""
    return _configured()[0] is None and worker_count(jobs) == 1


def _configured() -> tuple[Any, int]:
    """The backend that `joblib.parallel_config` names, if any, and its number of jobs."""
    if sys.modules.get("joblib") is None:
        return None, 1
    from joblib import effective_n_jobs
    from joblib.parallel import get_active_backend

    backend, jobs = get_active_backend()
    # One that is named does not yield to a hint.
    hinted, _ = get_active_backend(prefer="threads")
    return (backend, jobs) if type(backend) is type(hinted) else (None, effective_n_jobs(None))


def _side_by_side(
    pool: Pool,
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    window: int,
) -> Iterator[Result | TaskError]:
    remaining = iter(tasks)
    waiting: deque[Task] = deque()
    while True:
        try:
            with pool(workers) as executor:
                futures: deque[Future[Result]] = deque()
                for task in remaining:
                    waiting.append(task)
                    futures.append(executor.submit(function, task))
                    if len(futures) == window * workers:
                        yield from _first(futures, waiting, function)
                while futures:
                    yield from _first(futures, waiting, function)
                return
        except BrokenExecutor:
            pass
        yield from one_by_one(function, waiting)
        waiting.clear()


def _first(
    futures: deque[Future[Result]], waiting: deque[Task], function: Callable[[Task], Result]
) -> Iterator[Result | TaskError]:
    """The result of the first task; where workers of a cluster died of it, it is done here."""
    try:
        result = futures.popleft().result()
    except _deaths() as death:
        if isinstance(death, BrokenExecutor):
            raise
        yield from one_by_one(function, [waiting.popleft()])
    else:
        waiting.popleft()
        yield result


def _rounds(
    parallel: Any, function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result | TaskError]:
    """Let joblib run a window of tasks after the other: its own generator has no bound."""
    from joblib import delayed

    remaining = iter(tasks)
    while window := list(islice(remaining, 2 * WINDOW * workers)):
        try:
            results = parallel(delayed(function)(task) for task in window)
        except _deaths():
            results = one_by_one(function, window)
        yield from results


def one_by_one(
    function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result | TaskError]:
    """Do tasks that a worker died of, to tell which of them it was; see `in_order`.

    Here and not in this process, wherever the others are done: in one beside it, that may die.
    """
    waiting = deque(tasks)
    while waiting:
        done = 0
        reason = ""
        try:
            with _fresh_process(1) as executor:
                while waiting:
                    result = executor.submit(function, waiting[0]).result()
                    waiting.popleft()
                    done += 1
                    yield result
        except _deaths() as death:
            reason = str(death).partition(". ")[0]
        # what was done before in that process may have been the cause
        if reason and not done:
            waiting.popleft()
            yield TaskError(f"its worker died of it ({reason})")


def _deaths() -> tuple[type[Exception], ...]:
    """What an executor raises when a worker died."""
    distributed = sys.modules.get("distributed")
    return (BrokenExecutor,) if distributed is None else (BrokenExecutor, distributed.KilledWorker)


@contextmanager
def _threads(workers: int) -> Iterator[Executor]:
    executor = ThreadPoolExecutor(workers)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Processes that stay for the next sweep, if they are joblib's, which end by themselves."""
    executor = _idle.pop(workers, None) or _joblib_processes(workers)
    if executor is None:
        with _fresh_process(workers) as executor:
            yield executor
        return
    with _killed_unless_done(executor):
        yield executor
    _idle[workers] = executor


@contextmanager
def _fresh_process(workers: int) -> Iterator[Executor]:
    """Processes that nothing ran in before."""
    executor = _joblib_processes(workers) or _spawned_processes(workers)
    with _killed_unless_done(executor):
        yield executor
    executor.shutdown()


def _joblib_processes(workers: int) -> Executor | None:
    """Processes that need no `if __name__ == "__main__":` in a script; None without joblib."""
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError:
        return None
    made: Executor = ProcessPoolExecutor(workers, timeout=IDLE_SECONDS)
    return made


def _spawned_processes(workers: int) -> Executor:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # not by fork: locks that other threads hold, such as those of engines, stay held in a child
    return ProcessPoolExecutor(workers, get_context("spawn"))


_idle: dict[int, Executor] = {}
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def _killed_unless_done(executor: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        processes = list((executor._processes or {}).values())
        executor.shutdown(wait=False)
        for process in processes:
            process.terminate()
        raise
