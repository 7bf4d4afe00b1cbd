"""The best static tree of N nodes when child j of a node is accepted with a fixed probability.

Then the worth of a tree is the sum, over its slots, of the product of these probabilities along
the path to it; the best tree follows by dynamic programming over nodes, children and depth.

Source: Chen et al. 2024, Sequoia, section 4.1.  There the probabilities are those of recursive
rejection; here of any rule, such as the exact optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otlp.checks import real_array, whole_number
from otlp.decode.drafting.growing import check_slots
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError

Shape = tuple[int, ...]


def best_static_tree(acceptance: Sequence[float], nodes: int, depth: int) -> tuple[Shape, float]:
    """Find the tree with the greatest sum of products of acceptance probabilities.

    Parameters
    ----------
    acceptance : sequence of float
        Probability that the first, second, ... child of a node is the one accepted, each in
        [0, 1]; a node has no more children than that.
    nodes : int
        N, drafted tokens.
    depth : int
        Length of the longest path.

    Returns
    -------
    shape : tuple of int
        The parent of each slot, as `tree_shape` takes it.
    worth : float
        Expected number of accepted tokens.

    Raises
    ------
    InvalidInputError
        If a number is less than 1, or the acceptance holds no probabilities.

    Notes
    -----
    O(depth N^2 children) time, in arrays of N.

    Examples
    --------
    >>> from otlp.decode.design import best_static_tree
    >>> best_static_tree([0.6, 0.2], nodes=3, depth=2)
    ((-1, 0, 0, 1), 1.16)
    """
    check_slots(whole_number(nodes, "the number of nodes N"))
    whole_number(depth, "depth")
    chances = _probabilities(acceptance)
    children = min(chances.size, nodes)
    # best[d][m]: worth of at most m nodes below a node with d levels left
    best = [np.zeros(nodes + 1)]
    choices: list[list[list[int]]] = []
    for _ in range(min(depth, nodes)):
        below, tail = best[-1], np.zeros(nodes + 1)
        choice: list[list[int]] = []
        for child in reversed(range(children)):
            found, picked = np.zeros(nodes + 1), [0] * (nodes + 1)
            for m in range(1, nodes + 1):
                # the child takes b nodes below it, and its younger siblings what is left
                worth = chances[child] * (1.0 + below[:m]) + tail[m - 1 :: -1]
                picked[m] = int(np.argmax(worth))
                found[m] = worth[picked[m]]
            tail = found
            choice.append(picked)
        best.append(tail)
        choices.append(choice[::-1])
    shape = [-1]
    stack = [(0, min(depth, nodes), nodes)]
    while stack:
        slot, levels, left = stack.pop()
        for child in range(children):
            if not levels or not left:
                break
            under = choices[levels - 1][child][left]
            shape.append(slot)
            stack.append((len(shape) - 1, levels - 1, under))
            left -= 1 + under
    return tuple(shape), float(best[-1][nodes])


def tree_worth(acceptance: Sequence[float], shape: Sequence[int]) -> float:
    """Expected number of accepted tokens of a tree; see `best_static_tree`."""
    chances = _probabilities(acceptance)
    worth, children = [1.0], [0] * len(shape)
    for parent in shape[1:]:
        place = children[parent]
        children[parent] += 1
        worth.append(worth[parent] * (float(chances[place]) if place < chances.size else 0.0))
    return sum(worth[1:])


def _probabilities(values: Sequence[float]) -> FloatArray:
    chances = real_array(values, "acceptance", 1).astype(np.float64)
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise InvalidInputError(
            f"acceptance is {values!r:.60}: give for each child a probability in [0, 1]"
        )
    return chances
