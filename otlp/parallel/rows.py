"""Numbered rows of logits that can be cut into parts small enough to be sent to a worker.

A row keeps its number in every part.  The random numbers of a row depend only on the seed and the
number of the row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

from otlp.checks import whole_number
from otlp.data.capture import Capture
from otlp.data.synthetic import LEAST_TOKENS, generate
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, OTLPError, RowOutOfRangeError


def row_numbers(capture: Capture, rows: Sequence[int] | None) -> Sequence[int]:
    """Return checked row numbers of a capture, by default those of all rows.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type.
    RowOutOfRangeError
        If the capture does not have a row.
    """
    if not isinstance(capture, Capture):
        raise InvalidInputError(
            "capture must be an otlp.captures.Capture, such as otlp.captures.load(path), got "
            f"{type(capture).__name__}"
        )
    if rows is None:
        return range(len(capture))
    if isinstance(rows, str | bytes) or not (isinstance(rows, Sequence) or np.ndim(rows) == 1):
        raise InvalidInputError(
            f"rows must be a sequence of row numbers, such as range(10), got {type(rows).__name__}"
        )
    numbers = rows if isinstance(rows, range) else tuple(rows)
    for row in (*numbers[:1], *numbers[-1:]) if isinstance(numbers, range) else numbers:
        if whole_number(row, "a row", 0) >= len(capture):
            raise RowOutOfRangeError(
                f"row {row} is out of range; this capture has {len(capture)} rows, counted from 0"
            )
    return numbers if isinstance(numbers, range) else tuple(map(int, numbers))


@dataclass(frozen=True, eq=False)
class CaptureRows:
    """Rows of a capture.

    Parameters
    ----------
    capture : Capture
    chosen : sequence of int, optional
        Row numbers, default all rows.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type.
    RowOutOfRangeError
        If the capture does not have a row.
    """

    capture: Capture
    chosen: Sequence[int] | None = None
    numbers: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", row_numbers(self.capture, self.chosen))

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.capture.vocab_size

    @property
    def passages(self) -> IntArray:
        """Passage number of each row; see `Capture.passages`."""
        return self.capture.passages[np.asarray(self.numbers, dtype=np.int64)]

    def part(self, start: int, stop: int) -> list[tuple[int, Capture]]:
        """Return the number of each row from `start` to `stop`, with a capture of this row."""
        return [(number, self.capture[number : number + 1]) for number in self.numbers[start:stop]]

    def heading(self) -> dict[str, Any]:
        """Return the labels and a fingerprint of the numbers and logits of all rows; O(rows V)."""
        found = sha256(np.asarray(self.numbers, dtype="<i8").tobytes())
        for number in self.numbers:
            try:
                row = self.capture[number]
                found.update(row.target_logits.tobytes() + row.draft_logits.tobytes())
            except OTLPError as error:  # Unreadable rows are reported when they are used.
                found.update(str(error).encode())
        labels = ("target_model", "draft_model", "source", "synthetic", "vocab_size")
        return {
            **{label: getattr(self.capture, label) for label in labels},
            "rows": len(self.numbers),
            "fingerprint": found.hexdigest()[:16],
        }


@dataclass(frozen=True)
class SyntheticRows:
    """Synthetic rows of `otlp.synthetic.generate`, generated one at a time.

    Parameters
    ----------
    rows : int or range
        Number of rows, or a range of row numbers.
    vocab_size : int
        Vocabulary size V, at least 1,000.
    seed : int
        Random seed.

    Raises
    ------
    InvalidInputError
        If an argument is out of range.
    """

    rows: int | range
    vocab_size: int = 4096
    seed: int = 0
    numbers: range = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, range):
            numbers = range(whole_number(self.rows, "rows"))
            if numbers.stop > sys.maxsize:
                raise InvalidInputError(f"rows must be at most {sys.maxsize:,}, got {self.rows}")
        elif self.rows and min(self.rows[0], self.rows[-1]) < 0:
            raise InvalidInputError(f"rows must have no number below 0, got {self.rows}")
        else:
            numbers = self.rows
        object.__setattr__(self, "numbers", numbers)
        whole_number(self.vocab_size, "vocab_size", LEAST_TOKENS)
        whole_number(self.seed, "seed", 0)

    @property
    def passages(self) -> IntArray:
        """Passage number of each row; every row is a passage of its own."""
        return np.arange(len(self.numbers))

    def __iter__(self) -> Iterator[tuple[int, Capture]]:
        """Generate the rows one at a time, with their numbers."""
        for number in self.numbers:
            yield number, generate(1, self.vocab_size, seed=self.seed, first=number)

    def part(self, start: int, stop: int) -> SyntheticRows:
        """Return the rows from `start` to `stop`; a pickle contains only three numbers."""
        return replace(self, rows=self.numbers[start:stop])

    def heading(self) -> dict[str, Any]:
        """Return the three parameters that determine every row."""
        return {
            "synthetic": True,
            "vocab_size": self.vocab_size,
            "rows": str(self.rows) if isinstance(self.rows, range) else self.rows,
            "seed": self.seed,
        }


RowSource: TypeAlias = CaptureRows | SyntheticRows
"""Numbered rows in order; equal rows, and only equal rows, have equal headings."""
