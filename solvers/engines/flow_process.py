"""The near end of `flow_server`: a max-flow engine in another process, with a time limit."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.reductions.flow_network import FlowNetwork
from otlp.solvers.engines.flow_server import CAPACITY_TYPES, HEADER

__all__ = ["FlowProcess", "flow_process"]

SERVER = Path(__file__).with_name("flow_server.py")

START_LIMIT = 60.0
"""Seconds that an interpreter may take to start and to load the engine."""


class FlowProcess:
    """A running `flow_server`, which answers one request at a time.

    Parameters
    ----------
    interpreter : tuple of str
        The command of the Python that has the engine, with its options.
    engine : str
        A name that `flow_server` knows.

    Raises
    ------
    OSError
        If the command cannot be run.
    RuntimeError
        If the engine does not load or does not work there.
    TimeoutError
        If it took longer than `START_LIMIT`.
    """

    def __init__(self, interpreter: tuple[str, ...], engine: str) -> None:
        self._process = subprocess.Popen(
            [*interpreter, str(SERVER), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        atexit.register(self.close)
        try:
            with self._deadline(START_LIMIT):
                reply = self._receive()
            _content(reply)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can take a request."""
        return not self._requests.closed and self._process.poll() is None

    def max_flow(
        self, network: FlowNetwork, capacities: npt.NDArray[Any], time_limit: float | None
    ) -> npt.NDArray[Any]:
        """Arc flows of a maximum flow, in the type of the capacities (int64 or float64).

        Raises
        ------
        TimeoutError
            After `time_limit` seconds; the process is killed.
        RuntimeError
            If the engine fails, in its own words, or its process dies.
        """
        real = capacities.dtype.kind == "f"
        kind = np.dtype(CAPACITY_TYPES[real])
        size = capacities.size
        header = HEADER.pack(network.sink + 1, size, network.source, network.sink, real, 0)
        given = (network.tails, "<i8"), (network.heads, "<i8"), (capacities, kind)
        request = [header, *(np.asarray(array, dtype).tobytes() for array, dtype in given)]
        with self._lock, self._deadline(time_limit):
            for part in request:
                self._requests.write(part)
            self._requests.flush()
            reply = self._receive()
        return np.frombuffer(_content(reply), dtype=kind)

    def close(self) -> None:
        """Let the process end, or else kill it."""
        atexit.unregister(self.close)
        try:
            self._requests.close()
            self._process.wait(timeout=1.0)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._replies.close()

    def _receive(self) -> tuple[int, bytes]:
        header = self._replies.read(HEADER.size)
        if len(header) < HEADER.size:
            raise EOFError
        failed, size, *_ = HEADER.unpack(header)
        content = self._replies.read(size)
        if len(content) < size:
            raise EOFError
        return failed, content

    @contextmanager
    def _deadline(self, seconds: float | None) -> Iterator[None]:
        """Kill the process after so many seconds, and tell that from its death by itself."""
        expired = threading.Event()

        def stop() -> None:
            expired.set()
            self._process.kill()

        timer = None
        if seconds is not None and seconds <= threading.TIMEOUT_MAX:
            timer = threading.Timer(seconds, stop)
            timer.start()
        try:
            yield
        except BaseException as error:
            # A broken exchange leaves half a message in the pipes.
            self._process.kill()
            code = self._process.wait()
            if expired.is_set():
                raise TimeoutError(f"stopped after {seconds:g} s") from None
            if isinstance(error, EOFError | OSError):
                raise RuntimeError(f"the engine's process died with exit status {code}") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()


def _content(reply: tuple[int, bytes]) -> bytes:
    failed, content = reply
    if failed:
        raise RuntimeError(content.decode(errors="replace"))
    return content


_running: dict[tuple[object, ...], FlowProcess] = {}


def flow_process(interpreter: tuple[str, ...], engine: str) -> FlowProcess:
    """Return the process of an engine, started at the first call and after it died.

    Raises
    ------
    OSError, RuntimeError, TimeoutError
        See `FlowProcess`.
    """
    key = (os.getpid(), interpreter, engine)  # a fork does not share its parent's process
    process = _running.get(key)
    if process is not None and not process.alive:
        process.close()
        process = None
    if process is None:
        process = _running[key] = FlowProcess(interpreter, engine)
    return process
