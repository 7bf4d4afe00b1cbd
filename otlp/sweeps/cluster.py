"""A running Dask scheduler, whose workers do the tasks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.metadata import version

from otlp.errors import EngineNotFoundError, SchedulerError

TIMEOUT = 5.0
"""Seconds for the scheduler to answer."""


@contextmanager
def on_scheduler(address: str | None) -> Iterator[None]:
    """Send the tasks of `otlp.sweeps.workers.in_order` to a scheduler, inside the block.

    Parameters
    ----------
    address : str or None
        Of a scheduler that ``dask scheduler`` started, such as ``tcp://10.0.0.1:8786``; with None
        the block is as if it stood alone.

    Raises
    ------
    SchedulerError
        If the scheduler does not answer within 5 s, has no workers, or one of them lacks this
        version of otlp.
    EngineNotFoundError
        If Dask or joblib is missing.
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
        from distributed.comm import CommClosedError, get_address_host_port
        from joblib import parallel_config
    except ImportError:
        raise EngineNotFoundError(
            'a scheduler needs Dask and joblib: pip install "otlp[sweep]"'
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
        try:
            with parallel_config("dask", client=client):
                yield
        except (CancelledError, CommClosedError) as error:
            raise SchedulerError(
                f"the scheduler {address} went away: start it again, and then this; a journal "
                "keeps what is done"
            ) from error
