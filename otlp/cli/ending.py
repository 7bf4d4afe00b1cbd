"""How a command ends: the one place that says with which status, and what is said of it.

Status 1 is the answer no of a command that came to its end, so whatever else ends one has another:
Python's own of an error, click's of a reader that left and rich's are 1, too.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

import click

from otlp.cli.output import warn
from otlp.errors import OTLPError, clean

DONE, ANSWER_IS_NO, NOT_DONE = 0, 1, 2

FAULT = 70
"""That of a fault of a program, as `sysexits.h` numbers it."""

INTERRUPTED, READER_LEFT = 130, 141
"""What a shell says of a program that SIGINT, or SIGPIPE, ended."""


class AnswerIsNo(Exception):  # noqa: N818, for it is none
    """A command came to its end, and what it was asked is not so."""


class ReaderLeft(Exception):  # noqa: N818, for a reader may
    """Nobody reads standard output any more."""


@contextmanager
def out_of_click() -> Iterator[None]:
    """Let it be known that a reader left: click would end the process with status 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeft from error


def status_of(run: Callable[[], object]) -> int:
    """Run a command, say in a line what went wrong, and return the status of the process."""
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _Closed())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            # what the terminal's encoding lacks, such as a sign of plus and minus, ends nothing
            stream.reconfigure(errors="replace")
    try:
        status = _status_of(run)
    except OSError as error:  # not even that can be said
        status = _of_a_write(error)
    return max(status, *map(_flush, (sys.stdout, sys.stderr)))


class _Closed(io.TextIOBase):
    """Standard output where the shell closed it: what cannot be printed is no success."""

    def __init__(self) -> None:
        # else the first file that is opened would take its place, and what programs print
        while (number := os.open(os.devnull, os.O_RDWR)) < 1:
            pass
        if number > 1:
            os.close(number)
        else:
            os.set_inheritable(number, True)

    def write(self, text: str, /) -> int:
        """Refuse it."""
        raise OSError("standard output is closed: open it, or send it to a file")


def _status_of(run: Callable[[], object]) -> int:
    try:
        run()
    except BaseException as error:
        # click makes an error of its own of an interruption, and of an end of input
        found = (isinstance(error, click.Abort) and error.__cause__) or error
    else:
        return DONE
    match found:
        case AnswerIsNo():
            return ANSWER_IS_NO
        case ReaderLeft() | BrokenPipeError():
            return READER_LEFT
        case KeyboardInterrupt():
            warn("interrupted")
            # the process ends, and what was begun is dropped half made
            sys.unraisablehook = lambda found: None
            return INTERRUPTED
        case click.ClickException():
            found.show()
        case SystemExit():
            if not found.code:
                return DONE
            warn(f"something ended the command by sys.exit({found.code!r})")
        case OTLPError():
            warn(f"{type(found).__name__}: {found}")
        case MemoryError() | OverflowError() | OSError():
            warn(f"{type(found).__name__}: {found or 'take fewer rows, tokens or drafts'}")
        case _:
            click.echo(clean("".join(traceback.format_exception(found))), err=True, nl=False)
            warn("this is a fault of otlp: please report it, with what stands above")
            return FAULT
    return NOT_DONE


def _flush(stream: TextIO | None) -> int:
    """Write what is left to write; where nobody takes it, the status that says so."""
    if stream is None:  # it is closed
        return DONE
    try:
        stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            # the end of the process would try it once more, and have a status of its own
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                warn(f"cannot write to standard output: {error.strerror}")
        return _of_a_write(error)
    return DONE


def _of_a_write(error: OSError) -> int:
    return READER_LEFT if isinstance(error, BrokenPipeError) else NOT_DONE
