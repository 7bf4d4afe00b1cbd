"""The near end of `engine_server`: an engine in another process, which ends at the deadline."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy.typing as npt

from otlp.timing import checkpoint, seconds_left

# A script that is run: what multiprocessing starts would run the caller's script again.
SERVER = Path(__file__).with_name("engine_server.py")


class EngineProcess:
    """A running `engine_server`, for one request at a time.

    Parameters
    ----------
    engine : str
        A name that `engine_server` knows.
    """

    def __init__(self, engine: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), engine],
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

    @property
    def alive(self) -> bool:
        """Whether it can take a request."""
        return self._process.poll() is None

    def call(self, arguments: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
        """Run the engine's function of `engine_server` there.

        Raises
        ------
        TimeoutError
            At the deadline; the process is killed.
        RuntimeError
            If the engine fails, in its own words, or its process dies.
        """
        with self._killed_after(seconds_left()):
            self._requests.send(len(arguments))
            for array in arguments:  # one by one, since a pickle is a copy
                self._requests.send(array)
            reply = self._replies.recv()
        if isinstance(reply, str):
            raise RuntimeError(reply)
        answer: Sequence[npt.NDArray[Any]] = reply
        return answer

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
            if isinstance(error, EOFError | OSError):
                checkpoint()
                code = self._process.returncode
                raise RuntimeError(f"the engine's process died with exit status {code}") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # from here on it kills no later request
                if expired.is_set():
                    self._process.wait()


_running: WeakSet[EngineProcess] = WeakSet()
_idle: dict[str, list[EngineProcess]] = {}


def call_engine(engine: str, arguments: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
    """Call an engine in a process that is idle, or in a new one; threads never share one.

    Raises
    ------
    TimeoutError, RuntimeError
        See `EngineProcess.call`.
    """
    idle = _idle.setdefault(engine, [])
    process = None
    while process is None:
        try:
            process = idle.pop()  # one step, so no other thread gets the same
        except IndexError:
            process = EngineProcess(engine)
        if not process.alive:
            process.forget()
            process = None
    try:
        return process.call(arguments)
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
