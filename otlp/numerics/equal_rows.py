"""Equal rows of an array brought together, so that what depends on a row is computed once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from otlp.distribution import IntArray


def equal_rows(rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield each distinct row, and the places where it stands.

    Parameters
    ----------
    rows : ndarray of int, shape (m, n)

    Yields
    ------
    row : ndarray, shape (n,)
        In lexicographic order.
    places : ndarray, shape (k,), int64
        Ascending.  O(n m log m) for all together, and memory for three copies of the rows.
    """
    count, width = rows.shape
    if not count:
        return
    order = np.lexsort(rows.T[::-1]) if width else np.arange(count)
    ordered = rows[order]
    fresh = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    for begin, end in pairwise([0, *fresh.tolist(), count]):
        yield ordered[begin], order[begin:end]
