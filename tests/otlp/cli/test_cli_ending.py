"""With which status a command ends, whatever ends it."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys

import click
import pytest

from otlp.cli.ending import AnswerIsNo, status_of
from otlp.cli.output import console, fail
from otlp.errors import CaptureError


def aborted(by: type[BaseException]) -> click.Abort:
    """What click makes of an interruption, and of an end of input."""
    error = click.Abort()
    error.__cause__ = by()
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AnswerIsNo(), 1), (CaptureError("it is cut"), 2), (click.UsageError("no"), 2),
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
    said = capsys.readouterr().err
    assert (status in (0, 1, 141)) == (not said)
    assert ("fault of otlp" in said) == (status == 70)


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


@pytest.mark.parametrize("words", ["--help", "solve --top-k 4", "solve --top-k 0x"])
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
