"""Exit statuses and final error messages of all commands.

Status 1 means that a command completed and its answer is negative.  All other failures must have
another status; Python (uncaught exception), click and rich (broken pipe) would exit with 1.
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

SUCCESS, CHECK_FAILED, FAILED = 0, 1, 2

INTERNAL_ERROR = 70
"""Internal software error, EX_SOFTWARE of `sysexits.h`."""

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Status that a shell reports for a program ended by SIGINT or SIGPIPE."""


class CheckFailed(Exception):  # noqa: N818, it is a result
    """A command completed with a negative answer."""


class OutputClosed(Exception):  # noqa: N818, it is not an error
    """The reader closed standard output."""


@contextmanager
def raise_broken_pipe() -> Iterator[None]:
    """Turn BrokenPipeError into OutputClosed: click would exit with status 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


def status_of(run: Callable[[], object]) -> int:
    """Run a command, print one line about a failure, and return the exit status."""
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _Closed())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            # Characters that the terminal cannot encode (such as ±) must not abort the command.
            stream.reconfigure(errors="replace")
    try:
        status = _status_of(run)
    except OSError as error:  # Standard error cannot be written either.
        status = _status_of_write_error(error)
    return max(status, *map(_flush, (sys.stdout, sys.stderr)))


class _Closed(io.TextIOBase):
    """Standard output closed by the shell; writing raises, so that lost output is an error."""

    def __init__(self) -> None:
        # Occupy descriptors 0 and 1: otherwise the next opened file would receive printed output.
        while (number := os.open(os.devnull, os.O_RDWR)) < 1:
            pass
        if number > 1:
            os.close(number)
        else:
            os.set_inheritable(number, True)

    def write(self, text: str, /) -> int:
        """Raise OSError."""
        raise OSError("standard output is closed: open it or redirect it to a file")


def _status_of(run: Callable[[], object]) -> int:
    try:
        run()
    except BaseException as error:
        # click replaces KeyboardInterrupt and EOFError by Abort.
        found = (isinstance(error, click.Abort) and error.__cause__) or error
    else:
        return SUCCESS
    match found:
        case CheckFailed():
            return CHECK_FAILED
        case OutputClosed() | BrokenPipeError():
            return BROKEN_PIPE
        case KeyboardInterrupt():
            warn("interrupted")
            # Unfinished objects are dropped at exit: do not report their errors.
            sys.unraisablehook = lambda found: None
            return INTERRUPTED
        case click.ClickException():
            found.show()
        case SystemExit():
            if not found.code:
                return SUCCESS
            warn(f"code called by the command ran sys.exit({found.code!r})")
        case OTLPError():
            warn(f"{type(found).__name__}: {found}")
        case MemoryError() | OverflowError() | OSError():
            warn(f"{type(found).__name__}: {found or 'use fewer rows, tokens or drafts'}")
        case _:
            click.echo(clean("".join(traceback.format_exception(found))), err=True, nl=False)
            warn("internal error of otlp: please report it with the traceback above")
            return INTERNAL_ERROR
    return FAILED


def _flush(stream: TextIO | None) -> int:
    """Flush a stream and return the exit status: SUCCESS, or the status of the write error."""
    if stream is None:  # closed by the shell
        return SUCCESS
    try:
        stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            # Python would flush again at exit and set another exit status.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                warn(f"cannot write to standard output: {error.strerror}")
        return _status_of_write_error(error)
    return SUCCESS


def _status_of_write_error(error: OSError) -> int:
    return BROKEN_PIPE if isinstance(error, BrokenPipeError) else FAILED
