"""A running Dask scheduler, whose workers do the tasks."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from importlib.metadata import version
from threading import Event, Thread
from time import monotonic
from typing import Any
from weakref import WeakSet

from otlp.errors import EngineNotFoundError, SchedulerError

TIMEOUT = 5.0
"""Seconds for the scheduler to answer."""

PATIENCE = 120.0
"""Seconds without any worker after which those of a scheduler are given up."""

LOOK = 2.0
"""Seconds from one look at them to the next."""


class _Workers(Executor):
    """The workers of a Dask client.

    Dask's own executor leaves a future open for ever that is cancelled while its result is on the
    way, and raises TypeError in place of a result whose worker has just gone.
    """

    def __init__(self, client: Any) -> None:
        self.client, self.begun = client, WeakSet[Future[Any]]()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call, and fetch its result as soon as it is there."""
        from asyncio import run_coroutine_threadsafe

        call = self.client.submit(function, *args, pure=False, **kwargs)
        fetched = self.client.gather(call, asynchronous=True)
        future = run_coroutine_threadsafe(_waited(fetched), self.client.loop.asyncio_loop)
        self.begun.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is under way."""
        for future in list(self.begun):
            future.cancel()


async def _waited(result: Awaitable[Any]) -> Any:
    return await result


@contextmanager
def on_scheduler(address: str) -> Iterator[tuple[Executor, int]]:
    """Give the executor of a scheduler, and how many tasks its workers do at a time.

    Parameters
    ----------
    address : str
        Of a scheduler that ``dask scheduler`` started, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    SchedulerError
        If the scheduler does not answer within 5 s, has no workers, or one of them lacks this
        version of otlp; within the block, if all workers have been away for 120 s.
    EngineNotFoundError
        If Dask is missing.
    """
    try:
        from distributed import Client
        from distributed.comm import CommClosedError, get_address_host_port
    except ImportError:
        raise EngineNotFoundError(
            'a scheduler needs Dask: pip install -e ".[sweep]" in a clone of otlp'
        ) from None
    try:
        # A client would try again and again, or wait for ever for what is no scheduler.
        with socket.create_connection(get_address_host_port(address), TIMEOUT) as knock:
            if not address.startswith("tls:"):
                knock.recv(1)  # schedulers speak first
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, TypeError, ValueError, OverflowError) as error:
        raise SchedulerError(
            f"the scheduler {address} cannot be reached ({str(error) or type(error).__name__}): "
            "give the address that `dask scheduler` prints, such as tcp://10.0.0.1:8786"
        ) from error
    with client:
        _check_workers(client, address)
        executor = _Workers(client)
        over, deserted = Event(), Event()
        watch = Thread(target=_watch, args=(client, executor, over, deserted), daemon=True)
        watch.start()
        try:
            yield executor, sum(client.nthreads().values())
        except (CancelledError, CommClosedError, SchedulerError) as error:
            reason = "went away: start it again"
            if deserted.is_set():
                reason = f"has had no workers for {PATIENCE:g} s: start some"
            elif isinstance(error, SchedulerError) and client.status == "running":
                raise
            raise SchedulerError(
                f"the scheduler {address} {reason}, and then this; a journal keeps what is done"
            ) from error
        finally:
            over.set()
            watch.join()
            executor.shutdown(wait=False)


def _check_workers(client: Any, address: str) -> None:
    workers = client.run(version, "otlp", on_error="return")
    if not workers:
        raise SchedulerError(
            f"the scheduler {address} has no workers: start some with `dask worker {address}`"
        )
    for worker, found in workers.items():
        if found != version("otlp"):
            raise SchedulerError(
                f"the worker {worker} of {address} has otlp {found}, and this is "
                f"{version('otlp')}: install the same on every machine"
            )


def _watch(client: Any, executor: Executor, over: Event, deserted: Event) -> None:
    """Cancel what is under way once no worker has been there for `PATIENCE` seconds."""
    last = monotonic()
    while not over.wait(LOOK):
        try:
            workers = client.nthreads()
        except Exception:  # the scheduler is gone, which the tasks find out themselves
            return
        if workers:
            last = monotonic()
        elif monotonic() - last > PATIENCE:
            deserted.set()
            executor.shutdown(wait=False)
            return
