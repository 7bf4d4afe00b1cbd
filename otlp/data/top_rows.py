"""Rows with only the k most likely tokens and the mass of the rest."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otlp.checks import as_array, whole_number
from otlp.data.stored_rows import StoredRows
from otlp.distribution import FloatArray, IntArray, ReadOnly, frozen
from otlp.errors import InvalidInputError, RowOutOfRangeError

SLACK = 1e-3
"""Largest deviation from 1 of the total mass of a row, for float32 sums."""

ROUNDING = 1e-6
"""Rounding error of a float32 sum of probabilities."""

MOST_TOKENS = 2**24
"""Maximum vocabulary size, so that a file cannot cause huge allocations."""

Column = npt.NDArray[Any] | StoredRows


class TopRow(NamedTuple):
    """One row: ids and log-probabilities, shape (k,), and the log of the mass of the rest."""

    ids: IntArray
    logs: FloatArray
    rest: float


@dataclass(frozen=True, eq=False)
class TopRows(ReadOnly):
    """Log-probabilities of the k most likely tokens of each row.

    Can be used as a float32 array of shape (rows, V + 1): stored log-probabilities at their token
    ids, the log of the mass of the rest in the last column, and minus infinity elsewhere.

    Parameters
    ----------
    ids : ndarray of int, shape (rows, k)
        Ids of the k most likely tokens.
    logprobs : ndarray of float, shape (rows, k)
        Log-probabilities of these tokens at temperature 1.
    rest : ndarray of float, shape (rows,)
        Log of the total probability of all other tokens; minus infinity if it is 0.
    vocab_size : int
        Vocabulary size V.

    Raises
    ------
    InvalidInputError
        If a shape, a type or a row is invalid; rows in files are checked when they are read.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.data.captures import TopRows
    >>> rows = TopRows(np.array([[2, 0]]), np.log([[0.5, 0.3]]), np.log([0.2]), vocab_size=4)
    >>> rows.shape, np.exp(rows[0].astype(float)).round(3).tolist()
    ((1, 5), [0.3, 0.0, 0.5, 0.0, 0.2])
    """

    ids: Column
    logprobs: Column
    rest: Column
    vocab_size: int

    def __post_init__(self) -> None:
        vocab_size = whole_number(self.vocab_size, "vocab_size")
        if vocab_size > MOST_TOKENS:
            raise InvalidInputError(
                f"vocab_size must be at most {MOST_TOKENS:,}, got {reprlib.repr(vocab_size)}"
            )
        object.__setattr__(self, "vocab_size", vocab_size)
        columns = {}
        for name, kinds in (("ids", "iu"), ("logprobs", "f"), ("rest", "f")):
            column = getattr(self, name)
            if not isinstance(column, StoredRows):
                column = as_array(column, name)
            if column.dtype.kind not in kinds:
                raise InvalidInputError(
                    f"ids must be integers, logprobs and rest floats, got {name} {column.dtype}"
                )
            columns[name] = column
        ids, logprobs, rest = columns.values()
        if len(ids.shape) != 2 or ids.shape != logprobs.shape or ids.shape[:1] != rest.shape:
            raise InvalidInputError(
                "ids, logprobs and rest must have shapes (rows, k), (rows, k) and (rows,), got "
                f"{ids.shape}, {logprobs.shape} and {rest.shape}"
            )
        if not 1 <= ids.shape[1] <= self.vocab_size:
            raise InvalidInputError(
                f"the number of tokens per row must be 1 to V = {self.vocab_size}, got "
                f"{ids.shape[1]}"
            )
        if not any(isinstance(column, StoredRows) for column in columns.values()):
            check_rows(ids, logprobs, rest, vocab_size, "row {}".format)
            columns = {
                "ids": frozen(ids.astype(np.int32)),
                "logprobs": frozen(logprobs.astype(np.float32)),
                "rest": frozen(rest.astype(np.float32)),
            }
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, (rows, V + 1)."""
        return (self.ids.shape[0], self.vocab_size + 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the array, float32."""
        return np.dtype(np.float32)

    @property
    def k(self) -> int:
        """Number of stored tokens per row."""
        return int(self.ids.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.ids.shape[0])

    def __getitem__(self, rows: Any, /) -> Any:
        """Return a row of shape (V + 1,) for an integer, or `TopRows` for a slice or an array.

        An array of row numbers needs rows in memory.
        """
        if isinstance(rows, slice | np.ndarray):
            columns: tuple[Any, ...] = (self.ids, self.logprobs, self.rest)
            ids, logprobs, rest = (column[rows] for column in columns)
            return TopRows(ids, logprobs, rest, self.vocab_size)
        ids, logs, rest = self.row(rows)
        dense = np.full(self.vocab_size + 1, -np.inf, dtype=np.float32)
        dense[ids], dense[-1] = logs, rest
        return frozen(dense)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Return all rows, shape (rows, V + 1)."""
        made = np.empty(self.shape, np.float32 if dtype is None else dtype)
        for row in range(len(self)):
            made[row] = self[row]
        return made

    def row(self, row: int) -> TopRow:
        """Return one row as stored.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError
            If `row` is out of range, or a row read from a file is invalid.
        """
        if not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row} is out of range; there are {len(self)} rows")
        ids, logs, rest = (np.asarray(c[row]) for c in (self.ids, self.logprobs, self.rest))
        if isinstance(self.ids, StoredRows):
            check_rows(
                *(ids[None], logs[None], rest[None], self.vocab_size),
                lambda _: f"row {row} ({self.where(row)})",
            )
        return TopRow(ids.astype(np.int64), logs.astype(np.float64), float(rest))

    def where(self, row: int) -> str:
        """Return the location of a row as text."""
        return self.ids.where(row) if isinstance(self.ids, StoredRows) else "in memory"


def stack(rows: Sequence[TopRow], k: int, vocab_size: int) -> TopRows:
    """Stack rows of k tokens."""
    return TopRows(
        np.array([row.ids for row in rows], dtype=np.int64).reshape(-1, k),
        np.array([row.logs for row in rows], dtype=np.float32).reshape(-1, k),
        np.array([row.rest for row in rows], dtype=np.float32),
        vocab_size,
    )


def check_rows(
    ids: npt.NDArray[Any],
    logprobs: npt.NDArray[Any],
    rest: npt.NDArray[Any],
    vocab_size: int,
    place: Callable[[int], str],
) -> None:
    """Check that each row can be the k most likely tokens of a distribution.

    Raises
    ------
    InvalidInputError
        If a row is invalid; the message names the first such row by `place`.
    """
    k = ids.shape[1]
    with np.errstate(all="ignore"):
        logs, others = logprobs.astype(np.float64), rest.astype(np.float64)
        total = np.exp(logs).sum(axis=1) + np.exp(others)
        most = (vocab_size - k) * np.exp(logs.min(axis=1)) * (1.0 + SLACK) + SLACK
        wrong = {
            f"a token id outside [0, {vocab_size})": ((ids < 0) | (ids >= vocab_size)).any(axis=1),
            "a duplicate token": (np.diff(np.sort(ids, axis=1), axis=1) == 0).any(axis=1),
            "masses that do not add up to 1": ~(np.abs(total - 1.0) <= SLACK),
            "a rest too large for tokens less likely than those stored": np.exp(others) > most,
        }
    for problem, rows in wrong.items():
        for row in np.flatnonzero(rows)[:1]:
            raise InvalidInputError(
                f"{place(int(row))} must have the ids and log-probabilities of the {k} most likely "
                f"tokens and the log of the probability of all others, got {problem}"
            )
