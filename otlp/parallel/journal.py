"""An append-only journal of long work: JSON lines, a heading and a line for each finished piece.

Lines are only ever appended, in the order of the work, and reach the disk before the next piece
begins.  So whatever ends the work, what is in the file is the beginning of it: the same work goes
on after its last whole line, and the finished file does not depend on how often it was interrupted.
Each line ends with a check sum of itself and of all lines before.
"""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from otlp.data.whole_file import locked
from otlp.errors import JournalError

Entry = dict[str, Any]

CHECK = b', "check":'
"""What stands before the check sum of a line."""

MOST_HEADING = 2**20
"""Bytes; another file may be one endless line."""


class Journal:
    """A journal that is open to be read and gone on with, by one process at a time.

    Parameters
    ----------
    path : path-like
        Begun if it is not there or empty; its folder must exist.
    heading : mapping of str to what JSON takes
        What the work is.  A journal of other work is refused.

    Raises
    ------
    JournalError
        If the file is no journal, is that of other work (the message names the first difference),
        is being written by another process, or cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], heading: Mapping[str, Any]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise JournalError(f"the journal is {path!r}: it must be the path of a file")
        self.path = Path(path)
        try:
            self._file = self._open()
        except (OSError, ValueError) as error:
            raise self._error("cannot be written", error) from error
        try:
            self._end = os.fstat(self._file.fileno()).st_size
            self._sum, self._unread = 0, False
            if not self._end:
                self.append([dict(heading)])
            self._start = self._end = self._check(json.loads(json.dumps(dict(heading))))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

    def entries(self) -> Iterator[Entry]:
        """Read the finished lines; a torn last line, of work that was killed, is truncated.

        Raises
        ------
        JournalError
            If a line that is whole is no JSON object.
        """
        self._unread, end, self._sum = False, self._start, self._first
        with open(self.path, "rb") as file:
            file.seek(end)
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    break
                yield self._parsed(line, number)
                end += len(line)
        self._end = end
        os.ftruncate(self._file.fileno(), end)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add finished pieces, and return when they are on the disk; `entries` must be read before.

        Raises
        ------
        JournalError
            If they cannot be written.  The lines of before are still there.
        """
        if self._unread:
            deque(self.entries(), maxlen=0)
        lines, before = list[bytes](), self._sum
        for entry in entries:
            lines.append(line_of(entry, before))
            before = sum_of(lines[-1])
        content = memoryview(b"".join(lines))
        end = self._end + len(content)
        try:
            while content:
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)
            raise self._error("cannot be written", error) from error
        self._end, self._sum = end, before

    def _open(self) -> FileIO:
        """Open the file and lock it, before anything is written; it may be there or not."""
        if self.path.exists() and not self.path.is_file():
            raise OSError(errno.EINVAL, "no ordinary file")
        while True:
            # Unbuffered: what a full disk refuses must not be tried again when the file is closed.
            file = open(self.path, "ab", buffering=0)
            try:
                if not locked(file.fileno()):
                    raise JournalError(
                        f"{self.path}: another process is writing this journal: wait for it, or "
                        "name another file"
                    )
                with suppress(FileNotFoundError):
                    # else another took the name between, and it is that one to be locked
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                        return file
            except BaseException:
                file.close()
                raise
            file.close()

    def _check(self, wanted: Entry) -> int:
        """Compare the heading with what is wanted, and return where it ends."""
        try:
            with open(self.path, "rb") as file:
                line = file.readline(MOST_HEADING)
        except OSError as error:
            raise self._error("cannot be read", error) from error
        self._sum = 0
        found = self._parsed(line, 1)
        self._first, self._unread = self._sum, True
        if "format" in wanted and found.get("format") != wanted["format"]:
            raise JournalError(
                f"{self.path}: its first line is not the heading of a {wanted['format']} journal; "
                "name another file"
            )
        for what in {**wanted, **found}:
            there, here = found.get(what), wanted.get(what)
            if there != here:
                raise JournalError(
                    f"{self.path}: the journal of something else: {what} is {json.dumps(there)} "
                    f"there and {json.dumps(here)} here; ask for the same, or name another file"
                )
        return len(line)

    def _parsed(self, line: bytes, number: int) -> Entry:
        content, mark, check = line.rpartition(CHECK)
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise JournalError(
                f"{self.path}: line {number} is no JSON object: the file is no journal, or was "
                "changed; name another file"
            )
        if mark + check != _check_sum(content, self._sum):
            raise JournalError(
                f"{self.path}: line {number} is not what was written: the file was changed, or is "
                "no journal of this version; name another file"
            )
        del entry["check"]
        self._sum = sum_of(line)
        return entry

    def _error(self, what: str, error: OSError | ValueError) -> JournalError:
        reason = getattr(error, "strerror", None) or error
        return JournalError(
            f"{self.path}: {what} ({reason}); what it holds is kept, and the same work "
            "goes on from there: choose a folder that exists, is writable and has room"
        )


def line_of(entry: Mapping[str, Any], before: int = 0) -> bytes:
    """A line of a journal, from the check sum of the line before; 0 for the heading."""
    content = json.dumps(entry, allow_nan=False).encode()[:-1]
    return content + _check_sum(content, before)


def sum_of(line: bytes) -> int:
    """The check sum that a line ends with."""
    return int(line.rpartition(CHECK)[2][2:10], 16)


def _check_sum(content: bytes, before: int) -> bytes:
    return CHECK + b' "%08x"}\n' % crc32(content, before)
