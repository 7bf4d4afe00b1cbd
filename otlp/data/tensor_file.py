"""Safetensors files: headers checked against the file size, tensors read and written in pieces.

The safetensors package reads and writes whole tensors, and its NumPy arrays do not support
bfloat16.  This module opens a tensor from the header only, reads its rows on access, and its
descriptions of tensors can be pickled.

Files written by this module have a tensor of checksums for each tensor, which are compared whenever
rows are read; other files may have none.

Rows are read, not memory-mapped: a memory map would end the process if the file is truncated or a
network disk fails, would hold a file descriptor as long as a row, and would keep touched pages.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from otlp.distribution import frozen
from otlp.errors import CaptureError

MOST_HEADER = 100_000_000
"""Maximum size of a header in the safetensors format, in bytes."""

NUMBERS = {
    **{"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"},
    **{"I32": "<i4", "I64": "<i8", "U8": "|u1", "U32": "<u4"},
}
"""NumPy types of the tensor types; bfloat16 is read as bits, the upper half of a float32."""


CHECKS = ".crc32"
"""Suffix of the name of a tensor of checksums."""

LABELS_CHECK = "crc32"
"""Name of the label with the checksum of all other labels."""

NUMBERS_TOGETHER = 4096
"""Number of entries per checksum of a tensor with one axis; other tensors have one per row."""


class NewTensor(NamedTuple):
    """A tensor to write: its type in the file, its shape, and its rows in pieces."""

    kind: str
    shape: tuple[int, ...]
    pieces: Iterable[npt.NDArray[Any]]


@dataclass(frozen=True)
class FileTensor:
    """Location of a tensor in a file.

    Attributes
    ----------
    path : str
    stamp : tuple of int
        Size and modification time of the file when it was opened.
    kind : str
        Type of the tensor, a key of `NUMBERS`.
    shape : tuple of int
    offset : int
        Position of the first byte of the tensor in the file.
    content : bytes, optional
        Content of the whole file, if it was read.
    checks : FileTensor, optional
        Checksums of the rows.
    """

    path: str
    stamp: tuple[int, int]
    kind: str
    shape: tuple[int, ...]
    offset: int
    content: bytes | None = None
    checks: FileTensor | None = None

    def in_memory(self, content: bytes) -> FileTensor:
        """Return the same tensor with the content of the file in memory."""
        checks = self.checks and self.checks.in_memory(content)
        return replace(self, content=content, checks=checks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the arrays read; float32 for bfloat16."""
        return np.dtype(np.float32 if self.kind == "BF16" else NUMBERS[self.kind])

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read some rows, shape (stop - start, ...).

        Raises
        ------
        CaptureError
            If the file does not exist any more, has changed since it was opened, or is damaged.
        """
        if self.checks is None or start == stop:
            return self._decoded(self._stored(start, stop))
        per_check = _rows_per_check(self.shape)
        first, last = start // per_check, -(-stop // per_check)
        stored = self._stored(first * per_check, min(last * per_check, self.shape[0]))
        for number, expected in enumerate(self.checks.rows(first, last).tolist()):
            if crc32(stored[number * per_check : (number + 1) * per_check].data) != expected:
                raise CaptureError(
                    f"{self.path}: row {(first + number) * per_check} is damaged: its checksum "
                    f"differs; copy or write the file again, or without {CHECKS} tensors"
                )
        begin = start - first * per_check
        return self._decoded(stored[begin : begin + stop - start])

    def _stored(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows in the type of the file."""
        stored, width = np.dtype(NUMBERS[self.kind]), math.prod(self.shape[1:])
        first, count = self.offset + start * width * stored.itemsize, (stop - start) * width
        shape = (stop - start, *self.shape[1:])
        if self.content is not None:
            return np.frombuffer(self.content, stored, count, first).reshape(shape)
        with open_file(self.path) as file:
            if _stamp(file) != self.stamp:
                raise CaptureError(
                    f"{self.path}: was changed or replaced after it was opened; open it again"
                )
            file.seek(first)
            flat = np.fromfile(file, stored, count)
            if flat.size < count:
                raise OSError("unexpected end of file")
        return flat.reshape(shape)

    def _decoded(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.kind == "BF16":
            stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return frozen(stored)


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises
    ------
    CaptureError
        If the file cannot be read.
    """
    try:
        # A pipe would block, and a folder has no content.
        if not S_ISREG(os.stat(path).st_mode):
            raise CaptureError(f"{path}: cannot be read (not a regular file); pass another path")
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise CaptureError(
            f"{path}: there is no such file; check the path, or write a file with captures.save "
            "(captures.builtin needs no path)"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(
            f"{path}: cannot be read ({error}); pass the path of a readable file"
        ) from error


def read_header(path: str, file: BinaryIO) -> tuple[dict[str, str], dict[str, FileTensor]]:
    """Read metadata and tensor locations, and check that the tensors fill the file.

    Raises
    ------
    CaptureError
        If the tensors do not fill the file, or the file is not a safetensors file.
    """
    stamp = _stamp(file)
    length = int.from_bytes(file.read(8), "little")
    try:
        if not 0 < length <= min(MOST_HEADER, stamp[0] - 8):
            raise ValueError(f"{stamp[0]:,} bytes with a header of {length:,} bytes")
        found = json.loads(file.read(length))
        metadata = found.pop("__metadata__", {})
        if not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("metadata must be text")
        end = 8 + length
        tensors = {}
        for name, entry in sorted(found.items(), key=lambda item: item[1]["data_offsets"]):
            kind, shape, (begin, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if any(type(number) is not int or number < 0 for number in (*shape, begin, stop)):
                raise ValueError(f"tensor {name!r} has an invalid shape or position")
            itemsize = np.dtype(NUMBERS[kind]).itemsize if kind in NUMBERS else None
            if begin + 8 + length != end or (
                itemsize is not None and stop - begin != math.prod(shape) * itemsize
            ):
                raise ValueError(f"tensor {name!r} is not at the expected position")
            tensors[name] = FileTensor(path, stamp, kind, tuple(shape), end)
            end = 8 + length + stop
        if end != stamp[0]:
            raise ValueError(f"expected {end:,} bytes, got {stamp[0]:,}")
        if metadata.pop(LABELS_CHECK, None) not in (None, _labels_check(metadata)):
            raise ValueError("the checksum of the labels differs")
        for name in [name for name in tensors if name.endswith(CHECKS)]:
            checks, own = tensors.pop(name), tensors.get(name.removesuffix(CHECKS))
            if own is None:  # The caller reports missing tensors.
                continue
            if (checks.kind, checks.shape) != ("U32", _checks_shape(own.shape)):
                raise ValueError(f"the checksums {name!r} have the wrong type or shape")
            tensors[name.removesuffix(CHECKS)] = replace(own, checks=checks)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CaptureError(
            f"{path}: not a complete safetensors file ({error}); the file is truncated or of "
            "another type, copy or write it again"
        ) from None
    return metadata, tensors


def write_tensors(
    path: Path, columns: Mapping[str, NewTensor], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file with tensors in the order passed, followed by checksums.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    labels = {**metadata, LABELS_CHECK: _labels_check(metadata)}
    checks = {name: np.zeros(_checks_shape(one.shape), np.uint32) for name, one in columns.items()}
    added = {name + CHECKS: NewTensor("U32", sums.shape, [sums]) for name, sums in checks.items()}
    header: dict[str, Any] = {"__metadata__": labels}
    end = 0
    for name, column in {**columns, **added}.items():
        start = end
        end += math.prod(column.shape) * np.dtype(NUMBERS[column.kind]).itemsize
        header[name] = {"dtype": column.kind, "shape": column.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, column in columns.items():
            rows = 0
            for piece in column.pieces:
                stored = _encoded(piece, column.kind)
                _add_checks(checks[name], stored, rows, _rows_per_check(column.shape))
                rows += len(stored)
                file.write(stored.data)
        for sums in checks.values():
            file.write(sums.astype("<u4").data)


def _rows_per_check(shape: tuple[int, ...]) -> int:
    """Return the number of rows per checksum."""
    return 1 if len(shape) > 1 else NUMBERS_TOGETHER


def _checks_shape(shape: tuple[int, ...]) -> tuple[int]:
    return (-(-shape[0] // _rows_per_check(shape)) if shape else 0,)


def _add_checks(
    checks: npt.NDArray[np.uint32], stored: npt.NDArray[Any], first: int, per_check: int
) -> None:
    """Update the checksums with the rows from `first` on."""
    for number in range(first // per_check, -(-(first + len(stored)) // per_check)):
        start = number * per_check - first
        part = stored[max(start, 0) : start + per_check]
        checks[number] = crc32(part.data, int(checks[number]))


def _labels_check(metadata: Mapping[str, str]) -> str:
    return f"{crc32(json.dumps(metadata, sort_keys=True).encode()):08x}"


def _stamp(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _encoded(numbers: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Convert numbers to the type of the file."""
    if kind == "BF16":
        numbers = np.ascontiguousarray(numbers).view(np.uint32) >> np.uint32(16)
    return np.ascontiguousarray(numbers, NUMBERS[kind])
