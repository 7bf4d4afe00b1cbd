"""Stratified sampling of rows of a capture: one row drawn from each of equal parts.

Evenly spaced rows would alias with the passages of a capture: for ten passages of 32 tokens, ten
evenly spaced rows are the ten first tokens.
"""

from __future__ import annotations

import numpy as np

from otlp.errors import InvalidInputError

SEED = 0


def spread_rows(available: int, wanted: int) -> list[int]:
    """Return the ascending indices of at most `wanted` rows, equal in every call.

    Parameters
    ----------
    available : int
        Number of rows of the capture.
    wanted : int
        Number of rows to sample; all rows if the capture has fewer.

    Raises
    ------
    InvalidInputError
        If `available` is 0.

    Examples
    --------
    >>> from otlp.data.spread_rows import spread_rows
    >>> rows = spread_rows(320, 10)
    >>> [row // 32 for row in rows]
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> spread_rows(3, 10)
    [0, 1, 2]
    """
    if not available:
        raise InvalidInputError("the capture must have at least one row, got no rows")
    count = min(available, wanted)
    edges = np.arange(count + 1) * available // count
    drawn: list[int] = np.random.default_rng(SEED).integers(edges[:-1], edges[1:]).tolist()
    return drawn


def choice_of_rows(available: int, chosen: int) -> str:
    """Return a description of the rows sampled by `spread_rows`.

    Examples
    --------
    >>> from otlp.data.spread_rows import choice_of_rows
    >>> choice_of_rows(320, 10)
    '10 of 320 rows, one from each of 10 equal parts (seed 0)'
    >>> choice_of_rows(10, 10)
    'all 10 rows'
    """
    if chosen == available:
        return f"all {available:,} rows"
    parts = f"one from each of {chosen:,} equal parts (seed {SEED})"
    return f"{chosen:,} of {available:,} rows, {parts}"
