"""A safetensors file: its header, checked against its size, and tensors read or written in pieces.

The safetensors package reads and writes tensors whole, and its arrays for NumPy know no bfloat16.
Here a tensor is opened by its header alone, its rows are read when they are asked for, and what
describes it can be pickled.

What is written here has check sums beside each tensor, a tensor of their own, which are compared
whenever its rows are read; files of others may have none.

Rows are read at their place rather than mapped: a map would end the process where a file is cut
short or a network disk fails, hold a file descriptor as long as a row, and keep what was touched.
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
"""Bytes; the safetensors format allows no more."""

NUMBERS = {
    **{"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"},
    **{"I32": "<i4", "I64": "<i8", "U8": "|u1", "U32": "<u4"},
}
"""How NumPy calls the types of tensors; of a bfloat16 it takes the bits, half of a float32."""


CHECKS = ".crc32"
"""How the tensor of check sums is called, behind the name of the tensor that they are of."""

LABELS_CHECK = "crc32"
"""The label that is the check sum of all others."""

NUMBERS_TOGETHER = 4096
"""Numbers of a tensor of one axis that share a check sum; of others each row has its own."""


class NewTensor(NamedTuple):
    """A tensor to write: its type in the file, its shape, and its rows in pieces."""

    kind: str
    shape: tuple[int, ...]
    pieces: Iterable[npt.NDArray[Any]]


@dataclass(frozen=True)
class FileTensor:
    """Where a tensor lies.

    Attributes
    ----------
    path : str
    stamp : tuple of int
        Size and modification time of the file when it was opened.
    kind : str
        A key of `NUMBERS`.
    shape : tuple of int
    offset : int
        Of its first byte in the file.
    content : bytes, optional
        Of the whole file, where that was read.
    checks : FileTensor, optional
        Check sums of its rows.
    """

    path: str
    stamp: tuple[int, int]
    kind: str
    shape: tuple[int, ...]
    offset: int
    content: bytes | None = None
    checks: FileTensor | None = None

    def in_memory(self, content: bytes) -> FileTensor:
        """The same tensor, of the file's content."""
        checks = self.checks and self.checks.in_memory(content)
        return replace(self, content=content, checks=checks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays that are read, float32 for bfloat16."""
        return np.dtype(np.float32 if self.kind == "BF16" else NUMBERS[self.kind])

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read some rows, shape (stop - start, ...).

        Raises
        ------
        CaptureError
            If the file has gone, is not the one that was opened, or was damaged.
        """
        if self.checks is None or start == stop:
            return self._decoded(self._stored(start, stop))
        together = _together(self.shape)
        first, last = start // together, -(-stop // together)
        stored = self._stored(first * together, min(last * together, self.shape[0]))
        for number, wanted in enumerate(self.checks.rows(first, last).tolist()):
            if crc32(stored[number * together : (number + 1) * together].data) != wanted:
                raise CaptureError(
                    f"{self.path}: row {(first + number) * together} is damaged: its bytes are not "
                    f"those that were written; copy or write it again, or without {CHECKS} tensors"
                )
        begin = start - first * together
        return self._decoded(stored[begin : begin + stop - start])

    def _stored(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows as they lie in the file."""
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
                raise OSError("it ends too early")
        return flat.reshape(shape)

    def _decoded(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.kind == "BF16":
            stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return frozen(stored)


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Open an ordinary file, or say why it cannot be read.

    Raises
    ------
    CaptureError
    """
    try:
        # a pipe would block, a folder has no bytes
        if not S_ISREG(os.stat(path).st_mode):
            raise CaptureError(f"{path}: cannot be read (no ordinary file); give another path")
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise CaptureError(
            f"{path}: there is no such file; check the path, or write one with captures.save "
            "(captures.builtin needs no path)"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(
            f"{path}: cannot be read ({error}); give the path of a readable file"
        ) from error


def read_header(path: str, file: BinaryIO) -> tuple[dict[str, str], dict[str, FileTensor]]:
    """Read metadata and tensors, and see that these fill the file to the last byte.

    Raises
    ------
    CaptureError
        If they do not, or if it is no safetensors file.
    """
    stamp = _stamp(file)
    length = int.from_bytes(file.read(8), "little")
    try:
        if not 0 < length <= min(MOST_HEADER, stamp[0] - 8):
            raise ValueError(f"{stamp[0]:,} bytes with a header of {length:,}")
        found = json.loads(file.read(length))
        metadata = found.pop("__metadata__", {})
        if not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("its metadata holds more than text")
        end = 8 + length
        tensors = {}
        for name, entry in sorted(found.items(), key=lambda item: item[1]["data_offsets"]):
            kind, shape, (begin, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if any(type(number) is not int or number < 0 for number in (*shape, begin, stop)):
                raise ValueError(f"tensor {name!r} has no sound shape or place")
            itemsize = np.dtype(NUMBERS[kind]).itemsize if kind in NUMBERS else None
            if begin + 8 + length != end or (
                itemsize is not None and stop - begin != math.prod(shape) * itemsize
            ):
                raise ValueError(f"tensor {name!r} does not lie where it should")
            tensors[name] = FileTensor(path, stamp, kind, tuple(shape), end)
            end = 8 + length + stop
        if end != stamp[0]:
            raise ValueError(f"{end:,} bytes are promised, {stamp[0]:,} are there")
        if metadata.pop(LABELS_CHECK, None) not in (None, _labels_check(metadata)):
            raise ValueError("its labels are not those that were written")
        for name in [name for name in tensors if name.endswith(CHECKS)]:
            checks, own = tensors.pop(name), tensors.get(name.removesuffix(CHECKS))
            if own is None:  # whoever reads it says what it lacks
                continue
            if (checks.kind, checks.shape) != ("U32", _checks_shape(own.shape)):
                raise ValueError(f"the check sums {name!r} are of another shape")
            tensors[name.removesuffix(CHECKS)] = replace(own, checks=checks)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CaptureError(
            f"{path}: not a complete safetensors file ({error}); it is truncated or something "
            "else: copy or write it again"
        ) from None
    return metadata, tensors


def write_tensors(
    path: Path, columns: Mapping[str, NewTensor], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file, its tensors in the order given, and check sums behind them.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    labels = {**metadata, LABELS_CHECK: _labels_check(metadata)}
    checks = {name: np.zeros(_checks_shape(one.shape), np.uint32) for name, one in columns.items()}
    behind = {name + CHECKS: NewTensor("U32", sums.shape, [sums]) for name, sums in checks.items()}
    header: dict[str, Any] = {"__metadata__": labels}
    end = 0
    for name, column in {**columns, **behind}.items():
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
                _add_checks(checks[name], stored, rows, _together(column.shape))
                rows += len(stored)
                file.write(stored.data)
        for sums in checks.values():
            file.write(sums.astype("<u4").data)


def _together(shape: tuple[int, ...]) -> int:
    """Rows that share a check sum."""
    return 1 if len(shape) > 1 else NUMBERS_TOGETHER


def _checks_shape(shape: tuple[int, ...]) -> tuple[int]:
    return (-(-shape[0] // _together(shape)) if shape else 0,)


def _add_checks(
    checks: npt.NDArray[np.uint32], stored: npt.NDArray[Any], first: int, together: int
) -> None:
    """Go on with the check sums of the rows from `first` on."""
    start = 0
    while start < len(stored):
        number = (first + start) // together
        stop = min(len(stored), (number + 1) * together - first)
        checks[number] = crc32(stored[start:stop].data, int(checks[number]))
        start = stop


def _labels_check(metadata: Mapping[str, str]) -> str:
    return f"{crc32(json.dumps(metadata, sort_keys=True).encode()):08x}"


def _stamp(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _encoded(numbers: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Numbers as they lie in a file of this type."""
    if kind == "BF16":
        numbers = np.ascontiguousarray(numbers).view(np.uint32) >> np.uint32(16)
    return np.ascontiguousarray(numbers, NUMBERS[kind])
