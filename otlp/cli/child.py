"""Run user code in a child process, so that a crash or an endless loop does no harm.

At the time limit the parent kills the child and all processes that the child started
(`otlp.cli.orphans`).  If the parent is killed, a thread of the child kills the child; a kernel
alarm covers code that lets no other thread run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, TypeVar

from otlp.cli.orphans import kill_orphans
from otlp.errors import OTLPError, one_line

Result = TypeVar("Result")
Progress = Callable[..., None]

GRACE = 1.0
"""Seconds that a child has to exit, and delay of its alarm after the time limit."""

MAX_TIME_LIMIT = 1e6
"""Longest time in seconds that the system timer accepts."""

REPORT_INTERVAL = 0.1
"""Minimum time between two progress reports, in seconds."""


class ChildError(OTLPError, RuntimeError):
    """The child process returned no result."""


def run_in_child(
    work: Callable[[Progress], Result], time_limit: float, progress: Progress
) -> Result:
    """Call a function in a forked child process and return its result.

    Parameters
    ----------
    work : callable
        Called with a function that reports progress; must return a picklable object.
    time_limit : float
        Time limit in seconds, at most `MAX_TIME_LIMIT`.
    progress : callable
        Called with the arguments that `work` reports.

    Raises
    ------
    ChildError
        If `work` raises, calls `sys.exit`, ends its process, or exceeds the time limit; or if this
        process is daemonic.
    """
    if multiprocessing.current_process().daemon:
        raise ChildError("a daemonic process cannot start processes: use a non-daemonic process")
    time_limit = min(time_limit, MAX_TIME_LIMIT)
    with kill_orphans(), child_process(work, time_limit) as (child, receiver):
        result: Result = _receive(child, receiver, time_limit, progress)
        return result


def _receive(
    child: BaseProcess, receiver: Connection, time_limit: float, progress: Progress
) -> Any:
    deadline = time.monotonic() + time_limit
    try:
        while (left := deadline - time.monotonic()) > 0.0:
            if not receiver.poll(min(left, GRACE)):
                # A process started by the child may keep the child's end of the pipe open.
                if not child.is_alive() and not receiver.poll():
                    raise EOFError
                continue
            kind, content = receiver.recv()
            if kind == "result":
                return content
            if kind == "error":
                raise ChildError(content)
            progress(*content)
    except (EOFError, ConnectionError):
        child.join(GRACE)
        raise ChildError(_exit_message(child.exitcode)) from None
    raise ChildError(f"the time limit of {time_limit:g} s was reached")


@contextmanager
def child_process(
    work: Callable[[Progress], Any], time_limit: float = MAX_TIME_LIMIT
) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run a function in a forked child process, and kill its process group after the block."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, sender, time_limit))
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Python warns of threads of numerical libraries; these survive a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    sender.close()
    try:
        yield child, receiver
    finally:
        assert child.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
        receiver.close()


def _exit_message(status: int | None) -> str:
    if status is not None and status < 0:
        return f"the process was killed by signal {-status} ({signal.strsignal(-status)})"
    return f"the process exited with status {status}"


def _child(work: Callable[[Progress], Any], sender: Connection, time_limit: float) -> None:
    os.setpgid(0, 0)  # Started processes are killed with the child; Ctrl-C reaches only the parent.
    signal.setitimer(signal.ITIMER_REAL, time_limit + GRACE)
    Thread(target=_end_with_parent, daemon=True).start()
    reported = 0.0

    def progress(*content: Any) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_INTERVAL:
            reported = time.monotonic()
            sender.send(("progress", content))

    try:
        message: tuple[str, Any] = ("result", work(progress))
    except OTLPError as error:
        message = ("error", one_line(error))
    except (Exception, SystemExit) as error:
        message = ("error", f"{type(error).__name__}: {one_line(error)}")
    sender.send(message)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
