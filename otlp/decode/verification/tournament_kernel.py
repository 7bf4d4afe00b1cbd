"""A whole tournament on a prefix tree, as one kernel with its random numbers given.

The same rule as `Tournament` draws by where all slots of a depth have as many children, and the
same decisions as `otlp.batched.verify_tree` for the same numbers.
"""

from __future__ import annotations

from math import inf

import numpy as np

from otlp.decode.verification.martingale_kernel import draw
from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.numerics.score_chains import Score, ScoreSplit, drawn, powered, sliced, split
from otlp.numerics.two_slice import shares, skewed

NEGLIGIBLE = 1e-15
"""A share that is as good as none, as in `tournament`."""


@compiled
def _child(
    score: Score, found: ScoreSplit, weight: float, p: float, q: float
) -> tuple[Score, float, bool]:
    """Score and weight of a child with a token of probabilities p and q, and whether it can win."""
    if found.low == found.high:
        return score, 1.0 if weight * p >= q else weight * p / q, True
    lower, upper = shares(weight * p, q, found.low, found.high, found.up, found.down)
    lower, upper = lower if lower > NEGLIGIBLE else 0.0, upper if upper > NEGLIGIBLE else 0.0
    ratio = lower * found.low + upper * found.high
    if ratio <= NEGLIGIBLE:
        return score, 0.0, False
    lower, upper = lower / found.below, upper / found.above
    bottom = np.exp(score.left[-1, 0]) * lower
    score = sliced(score, found.cell, found.offset, bottom, lower, upper)
    wanted, won = weight * p, q * ratio
    return score, 1.0 if wanted >= won else wanted / won, True


@compiled
def verify_prefix_tree(
    target: FloatArray,
    draft: FloatArray,
    tokens: IntArray,
    branching: IntArray,
    numbers: FloatArray,
) -> tuple[IntArray, int, int]:
    """Select one path of a prefix tree of i.i.d. children and verify it.

    Parameters
    ----------
    target : ndarray, shape (N + 1, V)
    draft : ndarray, shape (I, V)
        Weights of the next token after the root and each slot, by depth; those of the draft after
        the I that have children.  Rows are divided by their sums where they are looked at.
    tokens : ndarray of int64, shape (N,)
        Of the slots but the root; the children of one stand together.
    branching : ndarray of int64, shape (L,)
        Children of each slot by depth.
    numbers : ndarray, shape (N + L + 4,)
        Uniform in [0, 1), those of `otlp.batched.verify_tree`.

    Returns
    -------
    path, accepted, token : ndarray of int64 of shape (L,), int, int
        The slots of the selected path, how many of them are accepted, and the token that follows.

    Notes
    -----
    Some 10 passes over the vocabulary for each different prefix with children.
    """
    length, size = branching.size, tokens.size + 1
    scores = [
        Score(
            np.array([-inf, 0.0]), np.zeros(1), np.ones(1), np.ones(1), np.zeros(0),
            np.full((1, 1), -inf), np.zeros((0, 1)),
        )
    ]  # fmt: skip
    splits = [ScoreSplit(0, -inf, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)] * draft.shape[0]
    weights, live = np.ones(size), np.ones(size, np.bool_)
    parents, first = np.zeros(size, np.int64), np.arange(size)
    p, q = np.empty(target.shape), np.empty(draft.shape)
    begin, end = 0, 1
    for level in range(length):
        children = branching[level]
        for slot in range(begin, end):
            known = first[slot]
            own_p, own_q, weight = p[known], q[known], weights[known]
            if known == slot:
                own_p[:], own_q[:] = target[slot], draft[slot]
                own_p /= own_p.sum()
                own_q /= own_q.sum()
                if live[slot]:
                    scores[slot] = powered(scores[slot], 1.0 / children)
                    splits[slot] = split(scores[slot], weight, own_p, own_q)
            for place in range(children):
                child = end + (slot - begin) * children + place
                parents[child], token = slot, tokens[child - 1]
                # equal paths know the same: what the first of them does
                for other in range(end, child):
                    same = first[parents[other]] == known
                    if same and tokens[other - 1] == token:
                        first[child] = first[other]
                        break
                alike = first[child]
                if alike < child:
                    scores.append(scores[alike])
                    weights[child], live[child] = weights[alike], live[alike]
                elif live[slot]:
                    score, weights[child], live[child] = _child(
                        scores[known], splits[known], weight, own_p[token], own_q[token]
                    )
                    scores.append(score)
                else:
                    scores.append(scores[slot])
                    weights[child], live[child] = 0.0, False
        begin, end = end, end + (end - begin) * children
    best, winner = -inf, 0
    for slot in range(begin, end):
        place_of = drawn(scores[slot], numbers[slot]) if live[slot] else -inf
        if place_of > best:
            best, winner = place_of, slot
    path, depth = np.full(length, -1), length if winner else 0
    for at in range(depth - 1, -1, -1):
        path[at] = winner
        winner = parents[winner]
    for accepted in range(depth, -1, -1):
        slot = first[path[accepted - 1]] if accepted else 0
        weight, uniform = weights[slot], numbers[size + 1 + accepted]
        if accepted == length:
            if uniform < weight:
                return path, accepted, draw(target[slot], numbers[-1])
            continue
        gamma, found = q[slot], splits[slot]
        if found.low < found.high:
            gamma = skewed(
                weight, p[slot], q[slot], found.low, found.high, found.up, found.down
            )  # fmt: skip
        left = np.maximum(weight * p[slot] - gamma, 0.0)
        total = left.sum()
        # 1 - w first: next to 1 a tiny mass would be lost
        if accepted == 0 or uniform * (total + (1.0 - weight)) < total:
            if total > 0.0:
                return path, accepted, draw(left, numbers[-1])
            return path, accepted, draw(p[slot], numbers[-1])
    return path, 0, 0
