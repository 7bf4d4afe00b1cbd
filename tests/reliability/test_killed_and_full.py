"""Commands leave no partial files if killed at any file operation or if the disk is full."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, run_python
from tests.reliability.commands import NEEDS_TORCH, OLD, WRITING, arguments, check_whole, outputs

QUICK = frozenset({"solve"})
LONG = frozenset({"audit", "capture", "cascade", "decode"})
"""Commands that load models; all commands write with `whole_file`, which the others test."""


def commands(long: frozenset[str]) -> list[Any]:
    """Return all commands that write files, with slow commands marked."""
    slow = [() if name in QUICK else (pytest.mark.slow,) for name in WRITING]
    return [
        pytest.param(name, marks=(*marks, pytest.mark.long) if name in long else marks)
        for name, marks in zip(WRITING, slow, strict=True)
    ]


COMMANDS = commands(LONG)
KILLED = commands(LONG | {"bench", "compare", "report"})  # once per kill


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 32 KiB."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k,nr_inodes=32", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def prepared(command: str, folder: Path, content: bytes = OLD) -> list[Path]:
    """Return the output files of a command, with previous content."""
    if command in NEEDS_TORCH:
        pytest.importorskip("torch")
        pytest.importorskip("transformers")
    files = outputs(command, folder)
    for path in files if command != "capture" else ():
        path.write_bytes(content)
    return files


def run(command: str, folder: Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def few_bytes() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "otlp", *arguments(command, folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=few_bytes,
    )


@pytest.mark.parametrize("command", KILLED)
def test_a_command_killed_at_any_step_leaves_whole_files(command: str, tmp_path: Path) -> None:
    prepared(command, tmp_path)
    run_python("-m", "tests.reliability.kill_at_every_step", command, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_may_not_write_on_leaves_the_old_files(command: str, tmp_path: Path) -> None:
    files = prepared(command, tmp_path)
    # The system limits every file to 60 bytes, so that writes fail midway.
    result = run(command, tmp_path, limit=60)
    assert result.returncode == 2, result.stderr
    assert "written" in result.stderr or "write" in result.stderr or "used" in result.stderr
    assert "Traceback" not in result.stderr
    for path in files:
        if path.exists():
            check_whole(path)
    left = {entry.name for entry in files[0].parent.iterdir()} - {path.name for path in files}
    assert all(name.endswith(".parts") for name in left), left


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_full_disk_leaves_the_old_files(command: str, full_disk: Path) -> None:
    files = prepared(command, full_disk, OLD[:1])
    with pytest.raises(OSError, match="No space"), open(full_disk / "ballast", "wb") as ballast:
        for _ in range(100):
            ballast.write(bytes(4096))
            ballast.flush()
    result = run(command, full_disk)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    for path in files:
        assert not path.exists() or path.read_bytes() == OLD[:1]
