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
from otlp.numerics.positive_part import positive_part
from otlp.numerics.two_slice import REASSOCIATE, shares, skewed

BLOCK = 256
"""Tokens that a draw steps over at once."""


@compiled(fastmath=REASSOCIATE)
def total(row: FloatArray) -> float:
    """Sum of a row, in float64."""
    found = 0.0
    for x in range(row.size):
        found += row[x]
    return found


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
def _reached(masses: FloatArray, level: float) -> tuple[int, float]:
    """The mass that a level falls in, never one of 0, and how far it goes there."""
    last = 0
    for x in range(masses.size):
        if masses[x] > 0.0:
            if level < masses[x]:
                return x, level
            level -= masses[x]
            last = x
    return last, float(masses[last])


@compiled
def draw(weights: FloatArray, uniform: float) -> int:
    """Draw an index by inversion, of blocks first: sums are vectorised, a search is not."""
    sums = np.empty((weights.size + BLOCK - 1) // BLOCK)
    for block in range(sums.size):
        sums[block] = total(weights[BLOCK * block : BLOCK * (block + 1)])
    block, rest = _reached(sums, uniform * sums.sum())
    return BLOCK * block + _reached(weights[BLOCK * block : BLOCK * (block + 1)], rest)[0]


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
        Next-token distributions after each prefix of each path, float32 or float64, as stored:
        each row is taken for itself over its sum in float64.
    tokens : ndarray of int64, shape (K, L)
        The drafted paths.
    numbers : ndarray, shape (K + L + 2,), float64
        Uniform in [0, 1): for the scores, for the prefixes by length, for the correction.

    Returns
    -------
    path, accepted, token : int
        The selected path, how much of it is accepted, and the token that follows.

    Notes
    -----
    O(V) for each different prefix.  Rows are not divided: the draft's sum is the unit of all
    masses at a node.
    """
    paths, length = tokens.shape
    splits = np.empty((paths, length, 7))
    units, drafted = np.empty((2, paths, length))
    weights = np.ones((paths, length + 1))
    best, path = -1.0, 0
    for k in range(paths):
        edges, masses = np.array([0.0, 1.0]), np.ones(1)
        for level in range(length):
            p, q = target[k, level], draft[k, level]
            first = _first_alike(tokens, k, level)
            if first == k:
                drafted[k, level] = total(q)
                units[k, level] = drafted[k, level] / total(p)
                weight = weights[k, level] * units[k, level]
                splits[k, level] = split_scores(edges, masses, paths, weight, p, q)
            else:
                drafted[k, level], units[k, level] = drafted[first, level], units[first, level]
                splits[k, level] = splits[first, level]
            u, below, above, low, high, up, down = splits[k, level]
            x = tokens[k, level]
            wanted, has = weights[k, level] * units[k, level] * p[x], float(q[x])
            if below > 0.0:
                lower, upper = shares(wanted, has, low, high, up, down)
                has *= lower * low + upper * high
                edges, masses = child_scores(edges, masses, u, lower / below, upper / above)
            weights[k, level + 1] = 1.0 if wanted >= has else wanted / has
        score = _score(edges, masses, numbers[k])
        if score > best:
            best, path = score, k
    if numbers[paths + length] < weights[path, length]:
        return path, length, draw(target[path, length], numbers[-1])
    for accepted in range(length - 1, -1, -1):
        p, q = target[path, accepted], draft[path, accepted]
        weight = weights[path, accepted] * units[path, accepted]
        _, below, _, low, high, up, down = splits[path, accepted]
        gamma = skewed(weight, p, q, low, high, up, down)
        left, missing = positive_part(weight, p, 1.0, gamma)
        # 1 - w first: next to 1 a tiny mass would be lost
        rest = drafted[path, accepted] * (1.0 - weights[path, accepted])
        if missing > 0.0 and (
            accepted == 0 or numbers[paths + accepted] * (missing + rest) < missing
        ):
            return path, accepted, draw(left, numbers[-1])
    return path, 0, draw(target[path, 0], numbers[-1])


@compiled
def verify_rounds(
    target: FloatArray, draft: FloatArray, tokens: IntArray, numbers: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Verify a round of each text; arguments are those of `verify_round`, stacked.

    Returns
    -------
    output : ndarray of int64, shape (B, L + 1)
        The accepted tokens and the one that follows, padded with -1.
    accepted, path : ndarray of int64, shape (B,)
        How many are accepted, and of which path.
    """
    batch, _, length = tokens.shape
    output = np.full((batch, length + 1), -1)
    accepted, path = np.empty(batch, np.int64), np.empty(batch, np.int64)
    for row in range(batch):
        k, level, token = verify_round(target[row], draft[row], tokens[row], numbers[row])
        output[row, :level], output[row, level] = tokens[row, k, :level], token
        accepted[row], path[row] = level, k
    return output, accepted, path
