"""Run a command repeatedly, and kill each run one file operation later than the run before.

``python -m tests.reliability.kill_at_every_step COMMAND FOLDER``.  After each kill every file in
the folder must be complete.  The process is forked to save the start-up time.  File operations in
the folder are counted with Python's audit events, and the signal is SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from tests.reliability.commands import NEEDS_TORCH, OLD, arguments, check_whole, outputs

CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"})
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

STRIDES = {"decode": 3, "cascade": 3}
"""Slow commands are killed only at every third operation."""


def kill_at(step: int, folder: Path) -> None:
    """Kill this process before file operation number `step`."""
    seen = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in CHANGES or (event == "open" and args[2] and args[2] & WRITES):
            touched = any(str(folder) in os.fsdecode(a) for a in args if _is_path(a))
            seen += touched
            if touched and seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _is_path(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def run(words: list[str]) -> int:
    """Run the command line in this process."""
    from otlp.cli import main

    try:
        main(words, prog_name="otlp")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def main(command: str, folder: Path) -> None:
    """Kill the command at its first file operation, its second, and so on, until a run ends."""
    with tempfile.TemporaryDirectory() as other:  # load in this process what children need
        run(arguments("solve", Path(other)))
    if command in NEEDS_TORCH:
        import torch
        import transformers

        assert transformers.__version__
        torch.set_num_threads(1)
    words, files = arguments(command, folder), outputs(command, folder)
    if {"--figure", "--output"} & {*words}:
        import matplotlib.pyplot

        assert matplotlib.pyplot is not None
    if command != "capture":
        for path in files:
            path.write_bytes(OLD)
    kills = 0
    for step in count(1, STRIDES.get(command, 1)):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            kill_at(step, folder)
            os._exit(run(words))
        _, status = os.waitpid(child, 0)
        for path in files:
            if path.exists():
                check_whole(path)
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
    assert os.WEXITSTATUS(status) == 0, f"the last run failed with {os.WEXITSTATUS(status)}"
    for path in files:
        assert path.read_bytes() != OLD
    left = {entry.name for entry in folder.iterdir()} - {path.name for path in files}
    # A killed process leaves temporary files; their names are hidden or end in .parts.
    assert all(name.startswith(".") or name.endswith(".parts") for name in left), left
    print(f"{command}: killed {kills} times")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
