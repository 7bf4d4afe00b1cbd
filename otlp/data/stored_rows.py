"""Arrays and texts whose rows stay in their file until they are asked for.

A column of a capture that lies in a file is a `StoredRows` or a `StoredTexts`: where it lies, and
which of its rows are meant.  A slice is one too; a pickle holds paths and row numbers, no rows.
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
class InFile(Sequence[Row]):
    """Rows of a file.

    Parameters
    ----------
    picked : range
        Those that are meant, by their numbers in the file.
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
        """Return one row for a number, or those of a slice, which reads nothing."""
        if isinstance(rows, slice):
            return replace(self, picked=self.picked[rows])
        return self._read(self._find(rows))

    @abstractmethod
    def _read(self, at: int) -> Row:
        """Read a row by its number in the file."""

    def _find(self, row: int) -> int:
        if not isinstance(row, Integral) or not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row!r} is out of range: there are {len(self)} rows")
        return self.picked[int(row)]


@dataclass(frozen=True)
class StoredTexts(InFile[str]):
    """Texts that stay in their file: their UTF-8 bytes, and where each ends."""

    ends: FileTensor
    content: FileTensor

    def _read(self, at: int) -> str:
        """Read one text.

        Raises
        ------
        CaptureError
            If it does not lie in the file, or is no text.
        """
        ends = self.ends.rows(max(at - 1, 0), at + 1).tolist()
        start, stop = ends if at else (0, ends[0])
        if not 0 <= start <= stop <= self.content.shape[0]:
            raise CaptureError(
                f"{self.ends.path}: the context of row {at} is said to lie at {start} to {stop} of "
                f"{self.content.shape[0]:,} bytes; write the capture again"
            )
        try:
            return self.content.rows(start, stop).tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CaptureError(
                f"{self.ends.path}: the context of row {at} is no text ({error}); write the "
                "capture again"
            ) from None


@dataclass(frozen=True)
class StoredRows(InFile[Any]):
    """Serves as an array, and stays in its file until it is asked for; ``np.asarray`` reads it."""

    tensor: FileTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (len(self), *self.tensor.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        return self.tensor.dtype

    def where(self, row: int) -> str:
        """Say in which file a row lies, and as which row of it."""
        return f"row {self._find(row)} of {self.tensor.path}"

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Read all rows into memory."""
        start = self.picked.start
        if self.picked.step == 1:
            read = np.asarray(self.tensor.rows(start, start + len(self)), dtype)
            # rows that were read are frozen, and who asks for a copy may write into it
            return read.copy() if copy else read
        made = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for at in range(len(self)):
            made[at] = self[at]
        return made

    def _read(self, at: int) -> Any:
        return self.tensor.rows(at, at + 1)[0]
