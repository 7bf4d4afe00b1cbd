"""Exit status of a command for every kind of ending."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import click
import pytest

from otlp.cli.exit_status import CheckFailed, status_of
from otlp.cli.output import console, fail
from otlp.errors import CaptureError
from tests.processes import alive


def aborted(by: type[BaseException]) -> click.Abort:
    """Return the exception that click raises for an interruption or end of input."""
    error = click.Abort()
    error.__cause__ = by()
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CheckFailed(), 1), (CaptureError("it is cut"), 2), (click.UsageError("no"), 2),
        (click.FileError("f"), 2), (SystemExit(1), 2), (SystemExit("words"), 2), (SystemExit(0), 0),
        (MemoryError(), 2), (OSError(28, "no room"), 2), (EOFError(), 70), (KeyError(1), 70),
        (pickle.UnpicklingError("data was truncated"), 70), (aborted(EOFError), 70),
        (KeyboardInterrupt(), 130), (aborted(KeyboardInterrupt), 130), (BrokenPipeError(), 141),
    ],
)  # fmt: skip
def test_one_is_the_status_of_an_answer_alone(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> None:
        raise error

    before = sys.unraisablehook
    assert status_of(run) == status
    sys.unraisablehook = before
    printed = capsys.readouterr().err
    assert (status in (0, 1, 141)) == (not printed)
    assert ("internal error of otlp" in printed) == (status == 70)


def test_failing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(lambda: fail("it is \x1b cut")) == 2
    assert capsys.readouterr().err == "otlp: it is \\x1b cut\n"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_sign_that_the_terminal_lacks_is_replaced(
    errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", errors=errors))
    assert status_of(lambda: console.print("0.5 ± 0.1")) == 0
    assert written.getvalue() == b"0.5 ? 0.1\n"


@pytest.mark.parametrize("words", ["--help", "info", "solve --top-k 0x"])
def test_a_reader_that_leaves_ends_a_command_as_a_signal_would(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "otlp", *words.split()]
    assert subprocess.run(command, stdout=writer, stderr=writer).returncode == 141
    os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_an_output_that_is_full_is_said() -> None:
    command = [sys.executable, "-m", "otlp", "--help"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "No space left" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("closed", [">&-", "0<&- >&-"])
def test_a_closed_standard_output_is_no_success(closed: str) -> None:
    command = f"{sys.executable} -m otlp --help {closed}"
    found = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True)
    assert found.returncode == 2 and "standard output is closed" in found.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_what_foreign_code_started_ends_with_it_in_any_session(tmp_path: Path) -> None:
    """A grandchild of a command and a fork of a function, each in a separate session."""
    (tmp_path / "mine.py").write_text(
        "import os, subprocess, time\n"
        "def rule(draft_tokens, p, q, rng):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        open('one', 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    other = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    open('other', 'w').write(str(other.pid))\n"
        "    while not os.path.exists('one'):\n"
        "        time.sleep(0.01)\n"
        "    os._exit(3)\n"
    )
    words = [sys.executable, "-m", "otlp", "audit", "mine.py:rule"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2 and "the process exited with status 3" in found.stderr
    for name in ("one", "other"):
        assert not alive(int((tmp_path / name).read_text()))
