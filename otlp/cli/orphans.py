"""What foreign code started ends with it, a process in a session of its own too (on Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHILD_SUBREAPER = 36
"""Option of `prctl`: processes below this one whose parents end become its children."""

MOST_ROUNDS = 100
"""Generations of processes that start others while they are ended."""


@contextmanager
def ended_with_their_parents() -> Iterator[None]:
    """End all processes that were left to this one in the meantime, and those that they leave.

    Elsewhere than on Linux no process is told of those that its children leave: there, what made
    itself a session of its own goes on.
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
        for _ in range(MOST_ROUNDS):
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
        with suppress(OSError):  # it has ended by now
            state_and_parent = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(state_and_parent[1]) == os.getpid():
                found.add(int(folder.name))
    return found
