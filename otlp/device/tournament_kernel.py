"""A whole tournament on a prefix tree, as one kernel with its random numbers given.

The same rule as `Tournament` draws by where all slots of a depth have as many children.  On K paths
these are the decisions of `TwoSlicePaths`, and of `otlp.batched.verify_paths` for the same numbers;
on one path block verification.
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
"""Tokens that a draw steps over at once."""


@compiled(fastmath=WITHOUT_NAN)
def total(row: FloatArray) -> float:
    """Sum of a row, in float64."""
    found = 0.0
    for x in range(row.size):
        found += row[x]
    return found


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
def _first_alike(
    child: int, begin: int, before: int, children: int, tokens: IntArray, first: IntArray
) -> int:
    """First slot of a depth with the prefix of a child: equal prefixes have equal states.

    The depth begins at `begin`, the one above at `before`; `first` is known of the latter.
    """
    parent, alike = first[before + (child - begin) // children], begin
    while tokens[alike - 1] != tokens[child - 1] or (
        first[before + (alike - begin) // children] != parent
    ):
        alike += 1
    return alike


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
    """Block verification of a path, from its end: how much is accepted, and what follows."""
    length = path.size - 1
    for accepted in range(depth, -1, -1):
        slot = path[accepted]
        weight, uniform = weights[slot], numbers[accepted]
        if accepted == length:
            if uniform < weight:
                return accepted, draw(target[slot], numbers[-1])
            continue
        p, q, found = target[slot], draft[slot], splits[slot]
        wanted = weight * units[slot]
        gamma = skewed(wanted, p, q, found.low, found.high, found.up, found.down)
        left, missing = positive_part(wanted, p, 1.0, gamma)
        # 1 - w first: next to 1 a tiny mass would be lost
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
    draft : ndarray, shape (I, V)
        Distributions after the root and each slot, by depth, and after the I slots with children:
        float32 or float64, as stored; each row is taken over its own sum in float64.
    tokens : ndarray of int64, shape (N,)
        Of the slots but the root; the children of one stand together.
    branching : ndarray of int64, shape (L,)
        Children of each slot by depth.
    scoring : ndarray, shape (K,), float64
        Uniform in [0, 1): for the scores of the K leaves.
    numbers : ndarray, shape (L + 2,), float64
        For the prefixes by length, and for the token that follows.

    Returns
    -------
    path, accepted, token : ndarray of int64 of shape (L + 1,), int, int
        Slots of the selected path, how much of it is accepted, and the token that follows.

    Notes
    -----
    Some 6 passes over the vocabulary for each different prefix with children, none below which no
    score can exceed the largest so far.  The draft's sum is the unit of all masses at a node.
    """
    length, size, inner = branching.size, tokens.size + 1, draft.shape[0]
    scores = [root_score()] * size
    splits = [ScoreSplit(0, -inf, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)] * inner
    weights, tops, first = np.ones(size), np.zeros(size), np.full(size, -1)
    drafted, units = np.zeros((2, inner))
    path, walked = np.zeros((2, length + 1), np.int64)
    best, first[0] = -inf, 0
    for leaf in range(scoring.size):
        before, begin, width = 0, 1, 1
        for level in range(length):
            slot, children = first[walked[level]], branching[level]
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
            walked[level + 1] = child
            if first[child] < 0:
                first[child] = _first_alike(child, begin, before, children, tokens, first)
                if first[child] == child:
                    token = tokens[child - 1]
                    wanted = weights[slot] * units[slot] * p[token]
                    scores[child], weights[child], tops[child] = child_score(
                        scores[slot], splits[slot], wanted, float(q[token])
                    )
            before, begin = begin, begin + width
        else:
            slot = first[walked[length]]
            if tops[slot] > best:
                score = drawn(scores[slot], scoring[leaf])
                if score > best:
                    best = score
                    path[:] = walked
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
    """Verify a tree of each text; arguments are those of `verify_tree`, stacked.

    Parameters
    ----------
    begin : int
        Where the numbers of a row that are for scores begin; those for prefixes are the last.
    output : ndarray of int64, shape (B, L + 1)
        Overwritten: the accepted tokens and the one that follows, padded with -1.
    accepted : ndarray of int64, shape (B,)
        Overwritten.
    path : ndarray of int64, shape (B, L)
        Overwritten: slots of the accepted path, then -1.
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
