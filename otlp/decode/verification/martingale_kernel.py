"""A whole verification of the martingale rule, as one kernel with its random numbers given.

The same rule as `MultipathMartingale` draws by, and the same decisions as
`otlp.batched.verify_paths` for the same numbers: the score of each path is drawn by inversion, the
largest selects, and the longest prefix that passes is accepted.  For one path this is block
verification.
"""

from __future__ import annotations

import numpy as np

from otlp.decode.verification.multipath_martingale import child_scores, split_scores
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.numerics.two_slice import shares, skewed


@compiled
def _score(edges: FloatArray, masses: FloatArray, uniform: float) -> float:
    """Draw a score from its law by inversion."""
    level = uniform * masses.sum()
    for cell in range(masses.size):
        if level < masses[cell]:
            return float(edges[cell] + (edges[cell + 1] - edges[cell]) * level / masses[cell])
        level -= masses[cell]
    return float(edges[-1])


@compiled
def _draw(weights: FloatArray, total: float, uniform: float) -> int:
    """Draw an index by inversion; never one of weight 0."""
    level, last = uniform * total, 0
    for x in range(weights.size):
        if weights[x] > 0.0:
            if level < weights[x]:
                return x
            level -= weights[x]
            last = x
    return last


@compiled
def _first_alike(tokens: IntArray, path: int, length: int) -> int:
    """The first path that begins with the same tokens."""
    for other in range(path):
        alike = True
        for level in range(length):
            alike = alike and tokens[other, level] == tokens[path, level]
        if alike:
            return other
    return path


@compiled
def verify_round(
    target: FloatArray, draft: FloatArray, tokens: IntArray, numbers: FloatArray
) -> tuple[int, int, int]:
    """Select one of K i.i.d. paths and verify it.

    Parameters
    ----------
    target : ndarray, shape (K, L + 1, V)
    draft : ndarray, shape (K, L, V)
        Next-token distributions after each prefix of each path, float64 of sum one.
    tokens : ndarray of int64, shape (K, L)
        The drafted paths.
    numbers : ndarray, shape (K + L + 2,)
        Uniform in [0, 1): for the scores, for the prefixes by length, for the correction.

    Returns
    -------
    path, accepted, token : int
        The selected path, how much of it is accepted, and the token that follows.

    Notes
    -----
    O(V) for each different prefix.
    """
    paths, length = tokens.shape
    splits = np.empty((paths, length, 7))
    weights = np.ones((paths, length + 1))
    best, path = -1.0, 0
    for k in range(paths):
        edges, masses = np.array([0.0, 1.0]), np.ones(1)
        for level in range(length):
            p, q, weight = target[k, level], draft[k, level], weights[k, level]
            first = _first_alike(tokens, k, level)
            if first < k:
                splits[k, level] = splits[first, level]
            else:
                splits[k, level] = split_scores(edges, masses, paths, weight, p, q)
            u, below, above, low, high, up, down = splits[k, level]
            x = tokens[k, level]
            ratio = 1.0
            if below > 0.0:
                lower, upper = shares(weight * p[x], q[x], low, high, up, down)
                ratio = lower * low + upper * high
                edges, masses = child_scores(edges, masses, u, lower / below, upper / above)
            wanted, drafted = weight * p[x], q[x] * ratio
            weights[k, level + 1] = 1.0 if wanted >= drafted else wanted / drafted
        score = _score(edges, masses, numbers[k])
        if score > best:
            best, path = score, k
    for accepted in range(length, -1, -1):
        p, weight = target[path, accepted], weights[path, accepted]
        if accepted == length:
            if numbers[paths + length] < weight:
                return path, accepted, _draw(p, p.sum(), numbers[-1])
            continue
        q = draft[path, accepted]
        _, below, _, low, high, up, down = splits[path, accepted]
        gamma = skewed(weight, p, q, low, high, up, down) if below > 0.0 else q
        left = np.maximum(weight * p - gamma, 0.0)
        total = left.sum()
        # 1 - w first: next to 1 a tiny mass would be lost
        if accepted == 0 or numbers[paths + accepted] * (total + (1.0 - weight)) < total:
            if total > 0.0:
                return path, accepted, _draw(left, total, numbers[-1])
            return path, accepted, _draw(p, p.sum(), numbers[-1])
    return path, 0, 0
