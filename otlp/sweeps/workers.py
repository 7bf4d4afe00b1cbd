"""Tasks in, results out: in order, a few at a time, in whatever workers there are.

Where the workers are is said outside of this package: `joblib.parallel_config` sends the tasks to
its backend, such as a Dask cluster.  Without one they stay on this machine.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

from otlp.distribution import whole_number
from otlp.errors import TaskError

__all__ = ["in_order", "worker_count"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Pool = Callable[[int], AbstractContextManager[Executor]]

WINDOW = 4
"""Tasks a worker that are under way, or done and not yet asked for."""


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    jobs: int | None = None,
    *,
    prefer: str = "processes",
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
        `joblib.parallel_config` where it is used, else 1.
    prefer : {"processes", "threads"}
        The kind of workers, unless `joblib.parallel_config` names its backend.

    Yields
    ------
    Result or TaskError
        One for each task, in the order of the tasks.  A `TaskError` stands for the task that a
        worker died of; what was under way beside it is run again, one by one.

    Raises
    ------
    InvalidInputError
        If `jobs` is no whole number of at least 1.
    Exception
        Whatever the function raises, at the place of its task.

    Notes
    -----
    A generator that is closed or interrupted ends its workers.
    """
    workers = worker_count(jobs)
    backend, configured = _configured()
    if hasattr(backend, "client"):
        cluster = partial(_cluster, backend.client)
        return _side_by_side(cluster, cluster, function, tasks, workers)
    if backend is not None:
        return _rounds(function, tasks, jobs or configured, workers)
    if workers == 1:
        return map(function, tasks)
    if prefer == "threads":
        return _side_by_side(ThreadPoolExecutor, ThreadPoolExecutor, function, tasks, workers)
    return _side_by_side(_processes, _fresh_process, function, tasks, workers)


def worker_count(jobs: int | None = None) -> int:
    """How many tasks `in_order` runs at a time; see there."""
    if jobs is not None:
        jobs = whole_number(jobs, "jobs")
    backend, configured = _configured()
    if backend is None:
        return jobs or configured
    return max(1, int(backend.effective_n_jobs(jobs or configured)))


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
    fresh: Pool,
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
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
                    if len(futures) == WINDOW * workers:
                        yield _first(futures, waiting)
                while futures:
                    yield _first(futures, waiting)
                return
        except _deaths():
            pass
        yield from _one_by_one(fresh, function, waiting)
        waiting.clear()


def _first(futures: deque[Future[Result]], waiting: deque[Task]) -> Result:
    result = futures.popleft().result()
    waiting.popleft()
    return result


def _rounds(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int, workers: int
) -> Iterator[Result | TaskError]:
    """Let joblib run a window of tasks after the other: its own generator has no bound."""
    from joblib import Parallel, delayed

    remaining = iter(tasks)
    while window := list(islice(remaining, 2 * WINDOW * workers)):
        try:
            results = Parallel(n_jobs=jobs)(delayed(function)(task) for task in window)
        except _deaths():
            results = _one_by_one(_fresh_process, function, window)
        yield from results


def _one_by_one(
    fresh: Pool, function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result | TaskError]:
    """Each task in a worker of its own, to tell which of them kills it."""
    for task in tasks:
        result: Result | TaskError
        try:
            with fresh(1) as executor:
                result = executor.submit(function, task).result()
        except _deaths() as death:
            result = TaskError(f"the process that worked on it died: {death}")
        yield result


def _deaths() -> tuple[type[Exception], ...]:
    """What an executor raises when a worker died."""
    distributed = sys.modules.get("distributed")
    return (BrokenExecutor,) if distributed is None else (BrokenExecutor, distributed.KilledWorker)


@contextmanager
def _cluster(client: Any, workers: int) -> Iterator[Executor]:
    """The workers of a Dask cluster, however many they are."""
    executor = client.get_executor(pure=False)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)  # cancels what has not started


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Processes that stay for the next sweep, where joblib is there to keep them."""
    try:
        from joblib.externals.loky import get_reusable_executor
    except ImportError:
        with _fresh_process(workers) as executor:
            yield executor
        return
    executor = get_reusable_executor(workers)
    with _killed_unless_done(executor):
        yield executor


@contextmanager
def _fresh_process(workers: int) -> Iterator[Executor]:
    """Processes that nothing ran in before."""
    executor: Executor
    try:
        from joblib.externals import loky

        executor = loky.ProcessPoolExecutor(workers)
    except ImportError:
        # not by fork: threads of engines would stand still in the child, and hold their locks
        executor = ProcessPoolExecutor(workers, get_context("spawn"))
    with _killed_unless_done(executor):
        yield executor
        executor.shutdown()


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
