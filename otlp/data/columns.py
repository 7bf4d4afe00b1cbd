"""What the columns of a capture may hold: logits, positions and next tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.checks import as_array
from otlp.data.stored_rows import StoredRows
from otlp.data.top_rows import TopRows
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, TokenOutOfRangeError

LogitArray = npt.NDArray[np.float16] | npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Logits in memory: bfloat16 is read as float32.

Examples
--------
>>> from otlp import captures
>>> captures.builtin().dtype
'float32'
"""

LazyArray: TypeAlias = StoredRows | TopRows
"""Serves as an array of logits, and becomes one where it is asked for; ``np.asarray`` reads it."""

UNKNOWN = -1
MEMORY_TYPES: dict[str, type[np.floating[Any]]] = {
    "float16": np.float16,
    "bfloat16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
}


def check_logits(logits: LogitArray, name: str, place: Callable[[int], str]) -> None:
    """Refuse rows without a finite logit, or with a NaN or plus infinity.

    Raises
    ------
    InvalidInputError
        Naming the first by `place`.
    """
    peaks = logits.max(axis=1)
    for row in np.flatnonzero(~np.isfinite(peaks))[:1]:
        found = "nothing but -inf" if peaks[row] == -np.inf else str(peaks[row])
        raise InvalidInputError(
            f"{name} {place(int(row))} holds {found}: a row needs a finite logit and may hold "
            "-inf, but no NaN or +inf; drop the row or mask the token with -inf"
        )


def check_next_tokens(tokens: IntArray, vocab_size: int, place: Callable[[int], str]) -> None:
    """Refuse what is neither a token id nor -1, naming the first by `place`."""
    for row in np.flatnonzero((tokens < UNKNOWN) | (tokens >= vocab_size))[:1]:
        raise TokenOutOfRangeError(
            f"{place(int(row))} is {tokens[row]}: a token id is in [0, {vocab_size}), "
            "or -1 if the next token is unknown"
        )


def as_rows(values: Any, name: str) -> npt.NDArray[Any] | LazyArray:
    """An array, in memory or in files, of what a user gives."""
    return values if isinstance(values, LazyArray) else as_array(values, name)


def row_integers(values: npt.ArrayLike | StoredRows, rows: int, name: str) -> IntArray | StoredRows:
    """An integer for each row, shape (rows,), -1 where none is given."""
    numbers = values if isinstance(values, StoredRows) else np.asarray(values)
    if numbers.shape == (0,):
        numbers = np.full(rows, UNKNOWN, dtype=np.int64)
    if numbers.shape != (rows,) or numbers.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} has shape {numbers.shape} and type {numbers.dtype}: it must hold one integer "
            f"for each of {rows} rows, or nothing at all"
        )
    if isinstance(numbers, StoredRows):
        return numbers
    return _read_only(numbers.astype(np.int64, copy=False))


def as_logits(given: npt.NDArray[Any] | LazyArray, dtype: str, name: str) -> LogitArray | LazyArray:
    """Logits of a precision, each row checked that lies in memory."""
    # A bfloat16 is the upper half of a float32, so nothing is lost. NumPy itself has no such type:
    # the arrays come from other libraries that add it.
    logits: Any = given
    if isinstance(given, np.ndarray) and given.dtype.name == "bfloat16":
        logits = given.astype(np.float32)
    if dtype not in MEMORY_TYPES or logits.dtype != MEMORY_TYPES[dtype]:
        raise InvalidInputError(
            f"{name} holds {given.dtype} and dtype is {dtype!r}: a capture is float16, "
            "bfloat16 (in float32 arrays), float32 or float64; convert the logits, for example by "
            "logits.astype(numpy.float32)"
        )
    if isinstance(given, LazyArray):
        return given
    check_logits(logits, name, "row {}".format)
    if dtype == "bfloat16" and np.any(logits.view(np.uint32) & np.uint32(0xFFFF)):
        raise InvalidInputError(
            f"{name} holds values that bfloat16 would round: leave dtype out to keep them in "
            "float32, or round them first"
        )
    return _read_only(logits)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # A view, so that the caller's own array stays writable.
    view = array.view()
    view.flags.writeable = False
    return view
