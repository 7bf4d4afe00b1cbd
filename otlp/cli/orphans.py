"""Kill the processes that user code started, including those in their own session (on Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHILD_SUBREAPER = 36
"""Option of `prctl`: orphaned descendants become children of this process."""

MAX_ROUNDS = 100
"""Maximum number of passes over processes that start further processes while being killed."""


@contextmanager
def kill_orphans() -> Iterator[None]:
    """Kill all processes orphaned in this context, and the orphans that they leave.

    Only Linux reassigns orphans to an ancestor.  On other systems a process that started its own
    session keeps running.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = _children()
    prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        for _ in range(MAX_ROUNDS):
            left = _children() - before
            for process in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
            if not left:
                break
        prctl(CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # The process may have exited.
            state_and_parent = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(state_and_parent[1]) == os.getpid():
                found.add(int(folder.name))
    return found
