"""Most likely tokens of a row, without sorting the others."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray

BLOCK = 64
"""Number of tokens whose maximum is computed first."""


def top_tokens(q: FloatArray, count: int) -> IntArray:
    """Return the most likely tokens, most likely first, ties by the lowest id; O(V)."""
    count = min(count, q.size)
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    # At least `count` tokens reach the `count`-th largest maximum of a block: few are compared.
    whole = q.size // BLOCK * BLOCK
    tops = np.append(q[:whole].reshape(-1, BLOCK).max(axis=1), q[whole:])
    if tops.size < 2 * count:
        tops = q
    least = np.partition(tops, tops.size - count)[tops.size - count]
    above = np.flatnonzero(q > least)
    if above.size > count:
        least = np.partition(q[above], above.size - count)[above.size - count]
        above = above[q[above] > least]
    tied = np.flatnonzero(q == least)
    found = np.concatenate((above, tied[: count - above.size]))
    order: IntArray = found[np.argsort(-q[found], kind="stable")]
    return order
