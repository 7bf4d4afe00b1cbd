"""Client of `engine_server`: runs an engine in another process, which is killed at the deadline."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy.typing as npt

from otlp.timing import checkpoint, seconds_left

# Run a script instead of using multiprocessing, which would run the caller's script again.
SERVER = Path(__file__).with_name("engine_server.py")


class EngineProcess:
    """A running `engine_server`, which handles one request at a time.

    Parameters
    ----------
    engine : str
        Name of an engine in `engine_server`.
    """

    def __init__(self, engine: str) -> None:
        # An import of 6 ms, which programs without an engine do not need.
        from multiprocessing.connection import Connection

        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # Unbuffered, so that a fork cannot write a buffer twice.
        )
        _running.add(self)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self._replies = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def call(self, arguments: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
        """Run the engine's function of `engine_server` in the process.

        Raises
        ------
        TimeoutError
            At the deadline; the process is killed.
        RuntimeError
            If the engine fails, with the engine's error message, or its process dies.
        """
        with self._killed_after(seconds_left()):
            self._requests.send(len(arguments))
            for array in arguments:  # One by one, because pickling copies an array.
                self._requests.send(array)
            reply = self._replies.recv()
        if isinstance(reply, str):
            raise RuntimeError(reply)
        answer: Sequence[npt.NDArray[Any]] = reply
        return answer

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this end of the pipes."""
        self._requests.close()
        self._replies.close()

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """Kill the process after `seconds`; raise TimeoutError then, RuntimeError if it died."""
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
            # An interrupted exchange can leave an incomplete message in the pipes.
            self.kill()
            if isinstance(error, EOFError | OSError):
                checkpoint()
                code = self._process.returncode
                raise RuntimeError(f"the engine's process died with exit status {code}") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # After this, the timer cannot kill a later request.
                if expired.is_set():
                    self._process.wait()


_running: WeakSet[EngineProcess] = WeakSet()
_idle: dict[str, list[EngineProcess]] = {}


def call_engine(engine: str, arguments: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
    """Call an engine in an idle process or in a new process; threads never share a process.

    Raises
    ------
    TimeoutError, RuntimeError
        See `EngineProcess.call`.
    """
    idle = _idle.setdefault(engine, [])
    while True:
        try:
            process = idle.pop()  # Atomic, so two threads cannot get the same process.
        except IndexError:
            process = EngineProcess(engine)
        if process.alive:
            break
        process.forget()
    try:
        return process.call(arguments)
    finally:
        if process.alive:
            idle.append(process)


@atexit.register
def _kill_all() -> None:
    for process in list(_running):
        with suppress(OSError):
            process.kill()


def _after_fork() -> None:
    # The processes belong to the parent: close the copies of their pipes, so they end with it.
    for process in list(_running):
        process.forget()
    _running.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_after_fork)
