"""Arrays and texts whose rows stay in their files until they are asked for.

A column of a capture that lies in files is a `StoredRows` or a `StoredTexts`: blocks of rows, one
a file, and which of them are meant.  A slice is one too, with the blocks that it needs; a pickle
holds paths and row numbers, no rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from otlp.data.tensor_file import FileTensor
from otlp.errors import CaptureError, RowOutOfRangeError

Block = TypeVar("Block", bound="FileTensor | FileTexts")
Row = TypeVar("Row")


class LazyArray(ABC):
    """Serves as an array, and becomes one only where it is asked for; ``np.asarray`` reads it."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""

    @abstractmethod
    def __getitem__(self, rows: Any, /) -> Any:
        """Read one row for a number; those of a slice are another such array."""

    @abstractmethod
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Read all rows into memory."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Say where a row lies."""


@dataclass(frozen=True)
class FileTexts:
    """Texts in a file: their UTF-8 bytes one behind the other, and where each ends."""

    ends: FileTensor
    content: FileTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the column: (rows,)."""
        return self.ends.shape

    @property
    def path(self) -> str:
        """The file."""
        return self.ends.path

    def text(self, row: int) -> str:
        """Read one text.

        Raises
        ------
        CaptureError
            If it does not lie in the file, or is no text.
        """
        ends = self.ends.rows(max(row - 1, 0), row + 1).tolist()
        start, stop = ends if row else (0, ends[0])
        if not 0 <= start <= stop <= self.content.shape[0]:
            raise CaptureError(
                f"{self.path}: the context of row {row} is said to lie at {start} to {stop} of "
                f"{self.content.shape[0]:,} bytes; write the capture again"
            )
        try:
            return self.content.rows(start, stop).tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CaptureError(
                f"{self.path}: the context of row {row} is no text ({error}); write the capture "
                "again"
            ) from None


@dataclass(frozen=True)
class InFiles(ABC, Generic[Block, Row]):
    """Rows in blocks.

    Parameters
    ----------
    blocks : tuple
        At least one, each of some rows.
    picked : range
        The rows that are meant, counted over all blocks.
    """

    blocks: tuple[Block, ...]
    picked: range

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Self:
        """All rows of some blocks."""
        given = tuple(blocks)
        return cls(given, range(sum(block.shape[0] for block in given)))

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((block.shape[0] for block in self.blocks), initial=0))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.picked)

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows."""
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, rows: int) -> Row: ...
    @overload
    def __getitem__(self, rows: slice) -> Self: ...
    def __getitem__(self, rows: int | slice) -> Row | Self:
        """Return one row for a number, or those of a slice, which reads nothing."""
        if isinstance(rows, slice):
            return self._slice(self.picked[rows])
        return self._read(*self._find(rows))

    def where(self, row: int) -> str:
        """Say in which file a row lies, and as which row of it."""
        block, inside = self._find(row)
        return f"row {inside} of {block.path}"

    @abstractmethod
    def _read(self, block: Block, row: int) -> Row: ...

    def _find(self, row: int) -> tuple[Block, int]:
        if not isinstance(row, Integral) or not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row!r} is out of range: there are {len(self)} rows")
        at = self.picked[int(row)]
        number = bisect_right(self._starts, at) - 1
        return self.blocks[number], at - self._starts[number]

    def _slice(self, picked: range) -> Self:
        if not picked:
            return type(self)(self.blocks[:1], range(0))
        starts = self._starts
        first = bisect_right(starts, min(picked[0], picked[-1])) - 1
        last = bisect_right(starts, max(picked[0], picked[-1]))
        shift = starts[first]
        moved = range(picked.start - shift, picked.stop - shift, picked.step)
        return type(self)(self.blocks[first:last], moved)


class StoredTexts(InFiles[FileTexts, str]):
    """Texts that stay in their files."""

    def _read(self, block: FileTexts, row: int) -> str:
        return block.text(row)


class StoredRows(InFiles[FileTensor, Any], LazyArray):
    """An array that stays in its files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (len(self), *self.blocks[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers; where blocks differ, one that holds those of all."""
        return np.result_type(*{block.dtype for block in self.blocks})

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Read all rows into memory."""
        if len(self.blocks) == 1 and self.picked == range(self.blocks[0].shape[0]):
            return np.asarray(self.blocks[0].rows(0, len(self)), dtype)
        made = np.empty(self.shape, self.dtype if dtype is None else dtype)
        if self.picked.step != 1:
            for at in range(len(self)):
                made[at] = self[at]
            return made
        first, last = self.picked.start, self.picked.stop
        for block, start in zip(self.blocks, self._starts, strict=False):
            low, high = max(first, start), min(last, start + block.shape[0])
            if low < high:
                made[low - first : high - first] = block.rows(low - start, high - start)
        return made

    def _read(self, block: FileTensor, row: int) -> Any:
        found = block.rows(row, row + 1)[0]
        return found if found.dtype == self.dtype else found.astype(self.dtype)
