"""Arrays and texts in a file whose rows are read on access.

A column of a capture in a file is a `StoredRows` or a `StoredTexts`: a location in the file and a
range of rows.  A slice has the same type.  A pickle contains paths and row numbers, but no rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from otlp.data.tensor_file import FileTensor
from otlp.errors import CaptureError, RowOutOfRangeError

Row = TypeVar("Row")


@dataclass(frozen=True)
class FileSequence(Sequence[Row]):
    """A range of rows in a file.

    Parameters
    ----------
    picked : range
        Numbers of the rows in the file.
    """

    picked: range

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.picked)

    @overload
    def __getitem__(self, rows: int) -> Row: ...
    @overload
    def __getitem__(self, rows: slice) -> Self: ...
    def __getitem__(self, rows: int | slice) -> Row | Self:
        """Return a row for an integer; for a slice return its rows without reading them."""
        if isinstance(rows, slice):
            return replace(self, picked=self.picked[rows])
        return self._read(self._find(rows))

    @abstractmethod
    def _read(self, at: int) -> Row:
        """Read the row with number `at` in the file."""

    def _find(self, row: int) -> int:
        if not isinstance(row, Integral) or not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row!r} is out of range; there are {len(self)} rows")
        return self.picked[int(row)]


@dataclass(frozen=True)
class StoredTexts(FileSequence[str]):
    """Texts in a file, stored as UTF-8 bytes and the end of each text."""

    ends: FileTensor
    content: FileTensor

    def _read(self, at: int) -> str:
        """Read one text.

        Raises
        ------
        CaptureError
            If the text is outside the stored bytes, or is not valid UTF-8.
        """
        ends = self.ends.rows(max(at - 1, 0), at + 1).tolist()
        start, stop = ends if at else (0, ends[0])
        if not 0 <= start <= stop <= self.content.shape[0]:
            raise CaptureError(
                f"{self.ends.path}: the context of row {at} must be inside the "
                f"{self.content.shape[0]:,} bytes of contexts, got bytes {start} to {stop}; write "
                "the capture again"
            )
        try:
            return self.content.rows(start, stop).tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CaptureError(
                f"{self.ends.path}: the context of row {at} must be UTF-8 ({error}); write the "
                "capture again"
            ) from None


@dataclass(frozen=True)
class StoredRows(FileSequence[Any]):
    """An array in a file, with a shape, a dtype, rows and slices; read by ``np.asarray``."""

    tensor: FileTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (len(self), *self.tensor.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the array."""
        return self.tensor.dtype

    def where(self, row: int) -> str:
        """Return the file of a row and its number in the file, as text."""
        return f"row {self._find(row)} of {self.tensor.path}"

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Read all rows into memory."""
        start = self.picked.start
        if self.picked.step == 1:
            read = np.asarray(self.tensor.rows(start, start + len(self)), dtype)
            # Rows read are read-only, but a copy must be writable.
            return read.copy() if copy else read
        made = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for at in range(len(self)):
            made[at] = self[at]
        return made

    def _read(self, at: int) -> Any:
        return self.tensor.rows(at, at + 1)[0]
