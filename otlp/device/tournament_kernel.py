"""The tournament on a prefix tree as one kernel, with random numbers as arguments.

The rule is that of `Tournament` on trees whose slots of equal depth have equally many children.  On
K paths the decisions are those of `TwoSlicePaths`, and of `otlp.batched.verify_paths` for the same
random numbers; on one path they are those of block verification.
"""

from __future__ import annotations

from math import inf

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.positive_part import positive_part
from otlp.numerics.score_chains import drawn, powered, root_score
from otlp.numerics.score_threshold import ScoreSplit, child_score, split
from otlp.numerics.two_slice import skewed

BLOCK = 256
"""Number of tokens per block of a draw."""


@compiled(fastmath=WITHOUT_NAN)
def total(row: FloatArray) -> float:
    """Return the sum of a row in float64."""
    found = 0.0
    for x in range(row.size):
        found += row[x]
    return found


@compiled
def _find_mass(masses: FloatArray, level: float) -> tuple[int, float]:
    """Return the index of the positive mass that contains a level, and the level inside it."""
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
    """Draw an index by inversion, blocks first, since sums are vectorised and searches are not."""
    sums = np.empty((weights.size + BLOCK - 1) // BLOCK)
    for block in range(sums.size):
        sums[block] = total(weights[BLOCK * block : BLOCK * (block + 1)])
    block, rest = _find_mass(sums, uniform * sums.sum())
    return BLOCK * block + _find_mass(weights[BLOCK * block : BLOCK * (block + 1)], rest)[0]


@compiled
def _first_equal(
    child: int, begin: int, before: int, children: int, tokens: IntArray, first: IntArray
) -> int:
    """Return the first slot of the depth of `child` with an equal prefix, which has an equal state.

    The slots of the depth start at `begin`, those of the depth above at `before`.  `first` must be
    known for the depth above.
    """
    parent, slot = first[before + (child - begin) // children], begin
    while tokens[slot - 1] != tokens[child - 1] or (
        first[before + (slot - begin) // children] != parent
    ):
        slot += 1
    return slot


@compiled
def _accepted(
    path: IntArray,
    target: FloatArray,
    draft: FloatArray,
    weights: FloatArray,
    splits: list[ScoreSplit],
    units: FloatArray,
    drafted: FloatArray,
    numbers: FloatArray,
    depth: int,
) -> tuple[int, int]:
    """Block-verify a path from its end; return the accepted length and the token after it."""
    length = path.size - 1
    for accepted in range(depth, -1, -1):
        slot = path[accepted]
        weight, uniform = weights[slot], numbers[accepted]
        if accepted == length:
            if uniform < weight:
                return accepted, draw(target[slot], numbers[-1])
            continue
        p, q, found = target[slot], draft[slot], splits[slot]
        weighted = weight * units[slot]
        gamma = skewed(weighted, p, q, found.low, found.high, found.up, found.down)
        left, missing = positive_part(weighted, p, 1.0, gamma)
        # Compute 1 - w first; otherwise a tiny mass would be lost.
        rest = drafted[slot] * (1.0 - weight)
        if missing > 0.0 and (accepted == 0 or uniform * (missing + rest) < missing):
            return accepted, draw(left, numbers[-1])
    return 0, draw(target[0], numbers[-1])


@compiled
def verify_tree(
    target: FloatArray,
    draft: FloatArray,
    tokens: IntArray,
    branching: IntArray,
    scoring: FloatArray,
    numbers: FloatArray,
) -> tuple[IntArray, int, int]:
    """Select one path of a prefix tree of i.i.d. children and verify it.

    Parameters
    ----------
    target : ndarray, shape (N + 1, V)
        Distributions after the root and each slot, by depth, in float32 or float64.  Each row is
        divided by its sum in float64.
    draft : ndarray, shape (I, V)
        Distributions after the root and each slot with children, likewise.
    tokens : ndarray of int64, shape (N,)
        Tokens of the slots except the root; the children of a slot are adjacent.
    branching : ndarray of int64, shape (L,)
        Number of children of each slot by depth.
    scoring : ndarray, shape (K,), float64
        Uniform random numbers in [0, 1) for the scores of the K leaves.
    numbers : ndarray, shape (L + 2,), float64
        Uniform random numbers for the prefixes by length, and for the token after them.

    Returns
    -------
    path, accepted, token : ndarray of int64 of shape (L + 1,), int, int
        Slots of the selected path, accepted length, and the token after the accepted path.

    Notes
    -----
    About 6 passes over the vocabulary for each distinct prefix with children.  Prefixes below which
    no score can exceed the largest score so far are skipped.  The unit of the masses at a node is
    the sum of its draft row.
    """
    length, size, inner = branching.size, tokens.size + 1, draft.shape[0]
    scores = [root_score()] * size
    splits = [ScoreSplit(0, -inf, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)] * inner
    weights, tops, first = np.ones(size), np.zeros(size), np.full(size, -1)
    drafted, units = np.zeros((2, inner))
    path, leaf_path = np.zeros((2, length + 1), np.int64)
    best, first[0] = -inf, 0
    for leaf in range(scoring.size):
        before, begin, width = 0, 1, 1
        for level in range(length):
            slot, children = first[leaf_path[level]], branching[level]
            if tops[slot] <= best:
                break
            p, q = target[slot], draft[slot]
            if drafted[slot] == 0.0:
                drafted[slot] = total(q)
                units[slot] = drafted[slot] / total(p)
                scores[slot] = powered(scores[slot], 1.0 / children)
                splits[slot] = split(scores[slot], weights[slot] * units[slot], p, q)
            width *= children
            child = begin + leaf * width // scoring.size
            leaf_path[level + 1] = child
            if first[child] < 0:
                first[child] = _first_equal(child, begin, before, children, tokens, first)
                if first[child] == child:
                    token = tokens[child - 1]
                    weighted = weights[slot] * units[slot] * p[token]
                    scores[child], weights[child], tops[child] = child_score(
                        scores[slot], splits[slot], weighted, float(q[token])
                    )
            before, begin = begin, begin + width
        else:
            slot = first[leaf_path[length]]
            if tops[slot] > best:
                score = drawn(scores[slot], scoring[leaf])
                if score > best:
                    best = score
                    path[:] = leaf_path
    depth = length if best > -inf else 0
    accepted, token = _accepted(
        first[path], target, draft, weights, splits, units, drafted, numbers, depth
    )
    return path, accepted, token


@compiled
def verify_trees(
    target: FloatArray,
    draft: FloatArray,
    tokens: IntArray,
    numbers: FloatArray,
    branching: IntArray,
    begin: int,
    output: IntArray,
    accepted: IntArray,
    path: IntArray,
) -> None:
    """Verify one tree per text; the arguments are those of `verify_tree`, stacked.

    Parameters
    ----------
    begin : int
        First column of `numbers` for scores; the last columns are for prefixes.
    output : ndarray of int64, shape (B, L + 1)
        Overwritten with the accepted tokens and the next token, padded with -1.
    accepted : ndarray of int64, shape (B,)
        Overwritten with the accepted lengths.
    path : ndarray of int64, shape (B, L)
        Overwritten with the slots of the accepted path, padded with -1.
    """
    length, leaves = branching.size, branching.prod()
    for row in range(tokens.shape[0]):
        output[row], path[row] = -1, -1
        slots, level, token = verify_tree(
            target[row], draft[row], tokens[row], branching,
            numbers[row, begin : begin + leaves], numbers[row, -length - 2 :],
        )  # fmt: skip
        for at in range(level):
            path[row, at], output[row, at] = slots[at + 1], tokens[row, slots[at + 1] - 1]
        accepted[row], output[row, level] = level, token
