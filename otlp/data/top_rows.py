"""Rows of which only the k likeliest tokens and the mass of the rest were kept."""

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
"""How far the masses of a row may be from adding up to one, as in float32."""

ROUNDING = 1e-6
"""Of a sum of probabilities in float32."""

MOST_TOKENS = 2**24
"""So that a file cannot ask for rows of any length."""

Column = npt.NDArray[Any] | StoredRows


class TopRow(NamedTuple):
    """One row: ids and log-probabilities, shape (k,), and the log of the rest."""

    ids: IntArray
    logs: FloatArray
    rest: float


@dataclass(frozen=True, eq=False)
class TopRows(ReadOnly):
    """Log-probabilities of which only the largest were kept.

    Serves as an array (rows, V + 1) of float32: the kept ones in their places, the log of the
    mass of the rest at the end, minus infinity elsewhere.

    Parameters
    ----------
    ids : ndarray of int, shape (rows, k)
        The k likeliest tokens.
    logprobs : ndarray of float, shape (rows, k)
        Their log-probabilities at temperature 1.
    rest : ndarray of float, shape (rows,)
        Log of the probability of all other tokens; minus infinity where there is none.
    vocab_size : int
        V.

    Raises
    ------
    InvalidInputError
        If shapes, types or a row do not fit together; what lies in files is validated row by row.

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
                f"vocab_size is {reprlib.repr(vocab_size)}: rows have at most {MOST_TOKENS:,} "
                "tokens"
            )
        object.__setattr__(self, "vocab_size", vocab_size)
        columns = {}
        for name, kinds in (("ids", "iu"), ("logprobs", "f"), ("rest", "f")):
            column = getattr(self, name)
            if not isinstance(column, StoredRows):
                column = as_array(column, name)
            if column.dtype.kind not in kinds:
                raise InvalidInputError(
                    f"{name} holds {column.dtype}: ids are integers, all else floats"
                )
            columns[name] = column
        ids, logprobs, rest = columns.values()
        if len(ids.shape) != 2 or ids.shape != logprobs.shape or ids.shape[:1] != rest.shape:
            raise InvalidInputError(
                f"ids has shape {ids.shape}, logprobs {logprobs.shape} and rest {rest.shape}: they "
                "must be (rows, k), (rows, k) and (rows,)"
            )
        if not 1 <= ids.shape[1] <= self.vocab_size:
            raise InvalidInputError(
                f"{ids.shape[1]} tokens a row are kept of V = {self.vocab_size}: it must be at "
                "least 1 and at most V"
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
        """Number of rows, and V + 1."""
        return (self.ids.shape[0], self.vocab_size + 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    @property
    def k(self) -> int:
        """How many tokens a row were kept."""
        return int(self.ids.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.ids.shape[0])

    def __getitem__(self, rows: Any, /) -> Any:
        """Return one row, shape (V + 1,), or the `TopRows` of a slice, in memory of any rows."""
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
        """All rows, shape (rows, V + 1)."""
        made = np.empty(self.shape, np.float32 if dtype is None else dtype)
        for row in range(len(self)):
            made[row] = self[row]
        return made

    def row(self, row: int) -> TopRow:
        """Return one row as it was kept.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError
            If there is none, or if it lies in a file and holds no such row.
        """
        if not -len(self) <= row < len(self):
            raise RowOutOfRangeError(f"row {row} is out of range: there are {len(self)} rows")
        ids, logs, rest = (np.asarray(c[row]) for c in (self.ids, self.logprobs, self.rest))
        if isinstance(self.ids, StoredRows):
            check_rows(
                *(ids[None], logs[None], rest[None], self.vocab_size),
                lambda _: f"row {row} ({self.where(row)})",
            )
        return TopRow(ids.astype(np.int64), logs.astype(np.float64), float(rest))

    def where(self, row: int) -> str:
        """Say where a row lies."""
        return self.ids.where(row) if isinstance(self.ids, StoredRows) else "in memory"


def stack(rows: Sequence[TopRow], k: int, vocab_size: int) -> TopRows:
    """Put rows of k tokens into arrays."""
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
    """Refuse the first row that cannot be the k likeliest tokens of a distribution.

    Raises
    ------
    InvalidInputError
        Naming it by `place`.
    """
    k = ids.shape[1]
    with np.errstate(all="ignore"):
        logs, others = logprobs.astype(np.float64), rest.astype(np.float64)
        total = np.exp(logs).sum(axis=1) + np.exp(others)
        most = (vocab_size - k) * np.exp(logs.min(axis=1)) * (1.0 + SLACK) + SLACK
        wrong = {
            f"a token id outside [0, {vocab_size})": ((ids < 0) | (ids >= vocab_size)).any(axis=1),
            "a token twice": (np.diff(np.sort(ids, axis=1), axis=1) == 0).any(axis=1),
            "masses that do not add up to 1": ~(np.abs(total - 1.0) <= SLACK),
            "more in the rest than tokens less likely than those kept can have": (
                np.exp(others) > most
            ),
        }
    for what, rows in wrong.items():
        for row in np.flatnonzero(rows)[:1]:
            raise InvalidInputError(
                f"{place(int(row))} holds {what}: it must have the ids and log-probabilities "
                f"of the {k} likeliest tokens, and the log of the probability of all others"
            )
