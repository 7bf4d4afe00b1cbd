"""The workers of a Dask cluster as an executor: they may come, go and die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any
from weakref import WeakSet

from otlp.errors import SchedulerError

PATIENCE = 120.0
"""Seconds without any worker after which those of a cluster are given up."""

LOOK = 2.0
"""Seconds from one look at them to the next."""


class Cluster(Executor):
    """The workers of a Dask cluster, however many they are."""

    def __init__(self, client: Any) -> None:
        self.client, self.deserted = client, False
        self.begun: WeakSet[Any] = WeakSet()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call, and fetch its result as soon as it is there."""
        call = self.client.submit(function, *args, pure=False, **kwargs)
        self.begun.add(call)
        return self.aside(self._fetched(call))

    def aside(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Let the client's thread do something."""
        return asyncio.run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)

    async def watch(self) -> None:
        """See whether workers that there were stay away."""
        last = inf
        while not self.deserted:
            if await self.client.nthreads(asynchronous=True):
                last = monotonic()
            self.deserted = monotonic() - last > PATIENCE
            await asyncio.sleep(LOOK)

    async def _fetched(self, call: Any) -> Any:
        found = asyncio.ensure_future(self.client.gather(call, asynchronous=True))
        found.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
        while not found.done():
            if self.deserted:
                raise BrokenExecutor(f"all workers have been away for {PATIENCE:g} s")
            await asyncio.wait([found], timeout=LOOK)
        return found.result()


@contextmanager
def watched(executor: Cluster, workers: int) -> Iterator[Executor]:
    """Watch the workers of a cluster while tasks are under way, and cancel what is left.

    Raises
    ------
    SchedulerError
        If all workers have been away for `PATIENCE` seconds.
    """
    if executor.deserted and not executor.client.nthreads():
        raise SchedulerError(
            f"all workers of {executor.client.scheduler.address} have been away for "
            f"{PATIENCE:g} s: start some, and then this again; a journal keeps what is done"
        )
    executor.deserted = False
    watch = executor.aside(executor.watch())
    try:
        yield executor
    finally:
        watch.cancel()
        executor.client.cancel(list(executor.begun))
