"""Accepted mass along a text for greedy multi-path: the highest of K i.i.d. paths."""

from __future__ import annotations

import numpy as np

from otlp.decode.design.profiles import UNSEEN
from otlp.decode.design.text_renewal import WrittenText
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.greedy_multipath import Consecutive, whole_interval
from otlp.distribution import FloatArray


def greedy_profile(text: WrittenText, paths: int, length: int) -> FloatArray:
    """A/P of K i.i.d. paths of L tokens, exact; the first columns are those of shorter paths.

    Parameters
    ----------
    text : WrittenText
    paths, length : int
        K and L.

    Returns
    -------
    ndarray, shape (T - L, L + 1)

    Notes
    -----
    O(T L) steps, at O(V) each.
    """
    profile = np.zeros((text.starts(length), length + 1))
    profile[:, 0] = 1.0
    for start, row in enumerate(profile):
        state, weight = whole_interval(paths), 1.0
        for depth in range(length):
            token = int(text.tokens[start + depth])
            p, q = text.targets[start + depth], text.drafts[start + depth]
            if q[token] <= 0.0:
                break
            below = Consecutive(state, p, q)
            skewed = float(q[token]) * below.ratio(token)
            row[depth + 1] = row[depth] * min(1.0, skewed / (weight * float(p[token])))
            if row[depth + 1] < UNSEEN:
                break
            weight = next_weight(weight, float(p[token]), skewed)
            state = below.child(token)
    return profile
