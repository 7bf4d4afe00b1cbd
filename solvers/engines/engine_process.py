"""The near end of `engine_server`: an engine in another process, which ends at the deadline."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from otlp.solvers.engines.engine_server import receive, send
from otlp.timing import checkpoint, seconds_left

SERVER = Path(__file__).with_name("engine_server.py")

START_LIMIT = 60.0
"""Seconds that an interpreter may take to start and to load the engine."""


class EngineProcess:
    """A running `engine_server`, for one request at a time.

    Parameters
    ----------
    interpreter : tuple of str
        The command of the Python that has the engine, with its options.
    engine : str
        A name that `engine_server` knows.

    Raises
    ------
    OSError
        If the command cannot be run.
    RuntimeError
        If the engine does not load or does not work there.
    TimeoutError
        If it took longer than `START_LIMIT`, or up to the deadline.
    """

    def __init__(self, interpreter: tuple[str, ...], engine: str) -> None:
        self._process = subprocess.Popen(
            [*interpreter, str(SERVER), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # nothing that a fork could write twice
        )
        _running.add(self)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self._replies = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()
        with self._killed_after(min(START_LIMIT, seconds_left())):
            reply = receive(self._replies)
        if reply:
            self.kill()
        _check(reply)

    @property
    def alive(self) -> bool:
        """Whether it can take a request."""
        return self._process.poll() is None

    def call(self, arguments: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run the engine's function of `engine_server` there.

        Parameters
        ----------
        arguments : sequence of ndarray
            Vectors of bytes, int64 or float64.

        Raises
        ------
        TimeoutError
            At the deadline; the process is killed.
        RuntimeError
            If the engine fails, in its own words, or its process dies.
        """
        with self._killed_after(seconds_left()):
            send(self._requests, arguments)
            reply = receive(self._replies)
        return _check(reply)

    def kill(self) -> None:
        """End the process, at once."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this end of the pipes."""
        self._requests.close()
        self._replies.close()

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """Kill the process after so many seconds, and tell that from its death by itself."""
        expired = threading.Event()

        def stop() -> None:
            expired.set()
            self._process.kill()

        timer = None
        if seconds <= threading.TIMEOUT_MAX:
            timer = threading.Timer(seconds, stop)
            timer.daemon = True
            timer.start()
        try:
            yield
        except BaseException as error:
            # A broken exchange leaves half a message in the pipes.
            self.kill()
            if expired.is_set():
                checkpoint()
                raise TimeoutError(f"did not start within {seconds:g} s") from None
            if isinstance(error, EOFError | OSError):
                code = self._process.returncode
                raise RuntimeError(f"the engine's process died with exit status {code}") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # from here on it kills no later request
                if expired.is_set():
                    self._process.wait()


def _check(reply: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    if len(reply) == 1 and reply[0].dtype == np.uint8:
        raise RuntimeError(bytes(reply[0]).decode(errors="replace"))
    return reply


_running: WeakSet[EngineProcess] = WeakSet()
_idle: dict[tuple[object, ...], list[EngineProcess]] = {}


def call_engine(
    interpreter: tuple[str, ...], engine: str, arguments: Sequence[npt.NDArray[Any]] | None
) -> list[npt.NDArray[Any]]:
    """Call an engine in a process that is idle, or in a new one; threads never share one.

    Parameters
    ----------
    interpreter, engine
        See `EngineProcess`.
    arguments
        See `EngineProcess.call`; without arguments it is only made sure that the engine works.

    Raises
    ------
    OSError, RuntimeError, TimeoutError
        See `EngineProcess`.
    """
    idle = _idle.setdefault((interpreter, engine), [])
    process = None
    while process is None:
        try:
            process = idle.pop()  # one step, so no other thread gets the same
        except IndexError:
            process = EngineProcess(interpreter, engine)
        if not process.alive:
            process.forget()
            process = None
    try:
        return [] if arguments is None else process.call(arguments)
    finally:
        if process.alive:
            idle.append(process)


@atexit.register
def _end() -> None:
    for process in list(_running):
        with suppress(OSError):
            process.kill()


def _after_fork() -> None:
    # The processes are the parent's: without a copy of their pipes here they end with it.
    for process in list(_running):
        process.forget()
    _running.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_after_fork)
