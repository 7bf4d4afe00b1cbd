"""Foreign code runs in a child process, which may end, crash or loop without harm.

The parent ends the child at the time limit, whatever the child is busy with, and with the child all
processes that the child started (`otlp.cli.orphans`).  If the
parent is killed, the child ends itself: a thread of it waits for that, and for code that lets no
thread run there is an alarm of the kernel.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from otlp.auditing.subject import one_line
from otlp.cli.orphans import ended_with_their_parents
from otlp.errors import OTLPError

Result = TypeVar("Result")
Progress = Callable[..., None]

GRACE = 1.0
"""Seconds that a child has to end, and that its alarm comes after the time limit."""

LONGEST = 1e6
"""Seconds that the timer of the system takes."""

BETWEEN_REPORTS = 0.1
"""Seconds between two reports of progress at least."""


class ChildError(OTLPError, RuntimeError):
    """The child process gave no result."""


def run_in_child(
    work: Callable[[Progress], Result], time_limit: float, progress: Progress
) -> Result:
    """Call a function in a forked child process and return what it returns.

    Parameters
    ----------
    work : callable
        Takes a function that reports progress; returns something that can be pickled.
    time_limit : float
        In seconds, at most `LONGEST`.
    progress : callable
        Called with what `work` reports.

    Raises
    ------
    ChildError
        If `work` raises, calls `sys.exit`, ends its process, or is not done in time.
    """
    if multiprocessing.current_process().daemon:
        raise ChildError("a daemonic process may start no others: run this in one that is none")
    with ended_with_their_parents():
        return _run_in_child(work, min(time_limit, LONGEST), progress)


def _run_in_child(
    work: Callable[[Progress], Result], time_limit: float, progress: Progress
) -> Result:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, sender, time_limit))
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Threads of numerical libraries are warned of; they survive a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    sender.close()
    deadline = time.monotonic() + time_limit
    try:
        while (left := deadline - time.monotonic()) > 0.0:
            if not receiver.poll(min(left, GRACE)):
                # a process that the child started may hold the child's end of the pipe
                if not child.is_alive() and not receiver.poll():
                    raise EOFError
                continue
            kind, content = receiver.recv()
            if kind == "result":
                result: Result = content
                return result
            if kind == "error":
                raise ChildError(content)
            progress(*content)
    except (EOFError, ConnectionError):
        child.join(GRACE)
        raise ChildError(_ending(child.exitcode)) from None
    finally:
        assert child.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
        receiver.close()
    raise ChildError(f"the time limit of {time_limit:g} s was reached")


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"it was ended by signal {-status} ({signal.strsignal(-status)})"
    return f"it ended its process with status {status}"


def _child(work: Callable[[Progress], Any], sender: Connection, time_limit: float) -> None:
    os.setpgid(0, 0)  # what the code starts ends with it, and Ctrl-C goes to the parent alone
    signal.setitimer(signal.ITIMER_REAL, time_limit + GRACE)
    Thread(target=_end_with_parent, daemon=True).start()
    reported = 0.0

    def progress(*content: Any) -> None:
        nonlocal reported
        if time.monotonic() - reported >= BETWEEN_REPORTS:
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
