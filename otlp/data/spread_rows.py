"""A stratified sample of the rows of a capture: one drawn from each of so many equal stretches.

Evenly spaced rows would alias with the passages that a capture was written from: of ten passages
of 32 tokens ten such rows are the ten first tokens.
"""

from __future__ import annotations

import numpy as np

from otlp.errors import InvalidInputError

SEED = 0


def spread_rows(available: int, wanted: int) -> list[int]:
    """Numbers of at most `wanted` rows, ascending; the same in every call.

    Parameters
    ----------
    available : int
        How many rows there are.
    wanted : int
        How many to choose; all of them, where there are no more.

    Raises
    ------
    InvalidInputError
        If there are none.

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
        raise InvalidInputError("the capture has no rows: there is nothing to solve")
    count = min(available, wanted)
    edges = np.arange(count + 1) * available // count
    drawn: list[int] = np.random.default_rng(SEED).integers(edges[:-1], edges[1:]).tolist()
    return drawn


def choice_of_rows(available: int, chosen: int) -> str:
    """How `spread_rows` chose so many rows, in words.

    Examples
    --------
    >>> from otlp.data.spread_rows import choice_of_rows
    >>> choice_of_rows(320, 10)
    '10 of 320 rows, one drawn from each of 10 equal stretches (seed 0)'
    >>> choice_of_rows(10, 10)
    'all 10 rows'
    """
    if chosen == available:
        return f"all {available:,} rows"
    stretches = f"one drawn from each of {chosen:,} equal stretches (seed {SEED})"
    return f"{chosen:,} of {available:,} rows, {stretches}"
