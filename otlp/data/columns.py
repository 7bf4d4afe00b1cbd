"""Types and checks of the columns of a capture: logits, positions and next tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.checks import as_array
from otlp.data.stored_rows import StoredRows
from otlp.data.top_rows import TopRows
from otlp.distribution import IntArray, frozen
from otlp.errors import InvalidInputError, TokenOutOfRangeError

LogitArray = npt.NDArray[np.float16] | npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Array of logits in memory; bfloat16 is converted to float32.

Examples
--------
>>> from otlp import captures
>>> captures.builtin().dtype
'float32'
"""

LazyArray: TypeAlias = StoredRows | TopRows
"""Logits with a shape, a dtype, rows and slices, read into an array by ``np.asarray``."""

UNKNOWN = -1
MEMORY_TYPES: dict[str, type[np.floating[Any]]] = {
    "float16": np.float16,
    "bfloat16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
}


def check_logits(logits: LogitArray, name: str, place: Callable[[int], str]) -> None:
    """Check that each row has a finite logit, no NaN and no plus infinity.

    Raises
    ------
    InvalidInputError
        If a row is invalid; the message names the first such row by `place`.
    """
    peaks = logits.max(axis=1)
    for row in np.flatnonzero(~np.isfinite(peaks))[:1]:
        found = "only -inf" if peaks[row] == -np.inf else str(peaks[row])
        raise InvalidInputError(
            f"{name} {place(int(row))} must have a finite logit and no NaN or +inf, got {found}; "
            "drop the row, or mask the token with -inf"
        )


def check_next_tokens(tokens: IntArray, vocab_size: int, place: Callable[[int], str]) -> None:
    """Raise TokenOutOfRangeError unless all entries are token ids or -1; name it by `place`."""
    for row in np.flatnonzero((tokens < UNKNOWN) | (tokens >= vocab_size))[:1]:
        raise TokenOutOfRangeError(
            f"{place(int(row))} must be a token id in [0, {vocab_size}), or -1 if the next token "
            f"is unknown, got {tokens[row]}"
        )


def as_rows(values: Any, name: str) -> npt.NDArray[Any] | LazyArray:
    """Return the values as an array in memory or in files."""
    return values if isinstance(values, LazyArray) else as_array(values, name)


def row_integers(values: npt.ArrayLike | StoredRows, rows: int, name: str) -> IntArray | StoredRows:
    """Return one integer per row, shape (rows,); -1 if no values are passed."""
    numbers = values if isinstance(values, StoredRows) else np.asarray(values)
    if numbers.shape == (0,):
        numbers = np.full(rows, UNKNOWN, dtype=np.int64)
    if numbers.shape != (rows,) or numbers.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must have one integer for each of {rows} rows or be left out, got shape "
            f"{numbers.shape} and type {numbers.dtype}"
        )
    if isinstance(numbers, StoredRows):
        return numbers
    # Make a view read-only, so that the array of the caller stays writable.
    return frozen(numbers.astype(np.int64, copy=False).view())


def as_logits(given: npt.NDArray[Any] | LazyArray, dtype: str, name: str) -> LogitArray | LazyArray:
    """Return logits in the precision `dtype`; rows in memory are checked."""
    # bfloat16 is the upper half of float32, so the conversion is exact.  NumPy has no bfloat16, but
    # other libraries add it.
    logits: Any = given
    if isinstance(given, np.ndarray) and given.dtype.name == "bfloat16":
        logits = given.astype(np.float32)
    if dtype not in MEMORY_TYPES or logits.dtype != MEMORY_TYPES[dtype]:
        raise InvalidInputError(
            f"{name} must be float16, bfloat16 (in float32 arrays), float32 or float64, equal to "
            f"dtype, got {given.dtype} and dtype {dtype!r}; convert the logits, for example with "
            "logits.astype(numpy.float32)"
        )
    if isinstance(given, LazyArray):
        return given
    check_logits(logits, name, "row {}".format)
    if dtype == "bfloat16" and np.any(logits.view(np.uint32) & np.uint32(0xFFFF)):
        raise InvalidInputError(
            f"{name} must have values representable in bfloat16; leave dtype out to keep them in "
            "float32, or round them first"
        )
    return frozen(logits.view())
