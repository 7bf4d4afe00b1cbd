"""Append-only journals of long runs: JSON lines, with a heading and one line per finished entry.

Lines are only appended, in the order of the entries, and `Journal.append` returns when the lines
are on the disk.  An interrupted run therefore leaves the first part of the file, and the same run
resumes after the last complete line.  The finished file does not depend on the number of
interruptions.
Each line ends with a checksum of itself and all earlier lines.
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
from typing import Any, Self
from zlib import crc32

from otlp.data.whole_file import locked
from otlp.errors import JournalError

Entry = dict[str, Any]

CHECK = b', "check":'
"""Bytes before the checksum of a line."""

MAX_HEADING_SIZE = 2**20
"""Maximum number of bytes read as the heading, since another file may have no line breaks."""


class Journal:
    """A journal opened for reading and appending, by one process at a time.

    Parameters
    ----------
    path : path-like
        File of the journal, started if it is missing or empty; its folder must exist.
    heading : mapping of str to JSON values
        Description of the run.  A journal with another heading is refused.

    Raises
    ------
    JournalError
        If the file is not a journal, has another heading (the message names the first difference),
        is open in another process, or cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], heading: Mapping[str, Any]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise JournalError(f"the journal must be the path of a file, got {path!r}")
        self.path = Path(path)
        try:
            self._file = self._open()
        except (OSError, ValueError) as error:
            raise self._error("cannot be written", error) from error
        try:
            self._end = os.fstat(self._file.fileno()).st_size
            self._checksum, self._unread = 0, False
            if not self._end:
                self.append([dict(heading)])
            self._start = self._end = self._check(json.loads(json.dumps(dict(heading))))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._file.close()

    def entries(self) -> Iterator[Entry]:
        """Iterate over the entries; an incomplete last line, of a killed run, is deleted.

        Raises
        ------
        JournalError
            If a complete line is not a JSON object, or its checksum differs.
        """
        self._unread, end, self._checksum = False, self._start, self._heading_checksum
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
        """Append entries and return when they are on the disk.

        Entries already in the file are read first, since the checksum covers all earlier lines.

        Raises
        ------
        JournalError
            If the entries cannot be written.  Earlier lines are unchanged.
        """
        if self._unread:
            deque(self.entries(), maxlen=0)
        lines, before = list[bytes](), self._checksum
        for entry in entries:
            lines.append(line_of(entry, before))
            before = checksum_of(lines[-1])
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
        self._end, self._checksum = end, before

    def _open(self) -> FileIO:
        """Open and lock the file; create the file if it does not exist."""
        if self.path.exists() and not self.path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        while True:
            # Unbuffered, so that close does not repeat a write that failed on a full disk.
            file = open(self.path, "ab", buffering=0)
            try:
                if not locked(file.fileno()):
                    raise JournalError(
                        f"{self.path}: another process is writing this journal; wait for it, or "
                        "name another file"
                    )
                with suppress(FileNotFoundError):
                    # Retry if the file was replaced before it was locked.
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                        return file
            except BaseException:
                file.close()
                raise
            file.close()

    def _check(self, heading: Entry) -> int:
        """Compare the heading of the file with `heading`, and return its length in bytes."""
        try:
            with open(self.path, "rb") as file:
                line = file.readline(MAX_HEADING_SIZE)
        except OSError as error:
            raise self._error("cannot be read", error) from error
        self._checksum = 0
        found = self._parsed(line, 1)
        self._heading_checksum, self._unread = self._checksum, True
        if "format" in heading and found.get("format") != heading["format"]:
            raise JournalError(
                f"{self.path}: the first line must be the heading of a {heading['format']} "
                "journal; name another file"
            )
        for name in {**heading, **found}:
            stored, current = found.get(name), heading.get(name)
            if stored != current:
                raise JournalError(
                    f"{self.path}: the journal is of another run: {name} must be "
                    f"{json.dumps(stored)} as in the journal, got {json.dumps(current)}; use the "
                    "same settings, or name another file"
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
                f"{self.path}: line {number} must be a JSON object; the file is not a journal, or "
                "was changed; name another file"
            )
        if mark + check != _checksum_suffix(content, self._checksum):
            raise JournalError(
                f"{self.path}: the checksum of line {number} differs; the file was changed, or is "
                "not a journal of this version; name another file"
            )
        del entry["check"]
        self._checksum = checksum_of(line)
        return entry

    def _error(self, problem: str, error: OSError | ValueError) -> JournalError:
        reason = getattr(error, "strerror", None) or error
        return JournalError(
            f"{self.path}: {problem} ({reason}); choose a folder that exists, is writable and has "
            "free space (the journal keeps its entries, and the same run resumes from them)"
        )


def line_of(entry: Mapping[str, Any], before: int = 0) -> bytes:
    """Return a line of a journal, given the checksum of the previous line (0 for the heading)."""
    content = json.dumps(entry, allow_nan=False).encode()[:-1]
    return content + _checksum_suffix(content, before)


def checksum_of(line: bytes) -> int:
    """Return the checksum at the end of a line."""
    return int(line.rpartition(CHECK)[2][2:10], 16)


def _checksum_suffix(content: bytes, before: int) -> bytes:
    return CHECK + b' "%08x"}\n' % crc32(content, before)
