"""Python subprocesses, and the state of running processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_python(*words: object, folder: Path = ROOT, **environment: str) -> str:
    """Run Python with arguments, or with code if there is one argument; return its output."""
    arguments = ["-c", *words] if len(words) == 1 else words
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _fields(process: int) -> list[str]:
    """Return state, parent, group, session, ... of a process; ["Z"] if it does not exist."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z"]


def alive(process: int) -> bool:
    """Return whether a process is running; a zombie is not running."""
    return _fields(process)[0] != "Z"


def parent(process: int) -> int:
    return int(_fields(process)[1])


def members(session: int) -> list[int]:
    """Return all running processes of a session."""
    every = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [one for one in every if alive(one) and _fields(one)[3:4] == [str(session)]]


def children(process: int) -> list[int]:
    """Return all descendants of a process."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found
