"""Grouping of equal rows of an array, so that results that depend on a row are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from otlp.distribution import IntArray


def equal_rows(rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield each distinct row, and the indices at which it occurs.

    Parameters
    ----------
    rows : ndarray of int, shape (m, n)

    Yields
    ------
    row : ndarray, shape (n,)
        Distinct row, in lexicographic order.
    places : ndarray, shape (k,), int64
        Indices, ascending.  O(n m log m) in total, and memory for three copies of the rows.
    """
    count, width = rows.shape
    if not count:
        return
    order = np.lexsort(rows.T[::-1]) if width else np.arange(count)
    ordered = rows[order]
    fresh = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    for begin, end in pairwise([0, *fresh.tolist(), count]):
        yield ordered[begin], order[begin:end]
