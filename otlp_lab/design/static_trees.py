"""The best static tree of N nodes when child j of a node is accepted with a fixed probability.

Then the worth of a tree is the sum, over its slots, of the product of these probabilities along
the path to it; the best tree follows by dynamic programming over nodes, children and depth.

Source: Chen et al. 2024, Sequoia, section 4.1.  There the probabilities are those of recursive
rejection; here of any rule, such as the exact optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    >>> from otlp_lab.design import best_static_tree
    >>> best_static_tree([0.6, 0.2], nodes=3, depth=2)
    ((-1, 0, 0, 1), 1.16)
    """
    check_slots(whole_number(nodes, "the number of nodes N"))
    whole_number(depth, "depth")
    chances = _probabilities(acceptance)
    # worth of at most so many nodes below a node, by the levels left
    best, levels = np.zeros(nodes + 1), []
    for _ in range(min(depth, nodes)):
        best, budgets = shared(chances[:nodes].tolist(), best, left_out=0.0)
        levels.append(budgets)
    shape = [-1]
    stack = [(0, len(levels), nodes)]
    while stack:
        slot, left, budget = stack.pop()
        for below in levels[left - 1](budget) if left else ():
            shape.append(slot)
            stack.append((len(shape) - 1, left - 1, below))
    return tuple(shape), float(best[nodes])


def shared(
    chances: Sequence[float], worth: FloatArray, left_out: float
) -> tuple[FloatArray, Callable[[int], list[int]]]:
    """Share nodes among children that are accepted with these chances, each with some below it.

    Parameters
    ----------
    chances : sequence of float
        Of the children, in order.
    worth : ndarray, shape (N + 1,)
        What 0, ..., N nodes are worth below a child.
    left_out : float
        What it is worth that no node is left for a child: 0, or minus infinity where all must be.

    Returns
    -------
    totals : ndarray, shape (N + 1,)
        The most that 0, ..., N nodes are worth.
    budgets : callable
        From a number of nodes to how many each child then has below it.
    """
    totals, picks = np.zeros(worth.size), []
    for chance in reversed(chances):
        found, picked = np.full(worth.size, left_out), np.zeros(worth.size, dtype=np.int64)
        for left in range(1, worth.size):
            # a child takes some nodes below it, and its younger siblings what is left
            each = chance * (1.0 + worth[:left]) + totals[left - 1 :: -1]
            picked[left] = np.argmax(each)
            found[left] = each[picked[left]]
        totals = found
        picks.append(picked)

    def budgets(left: int) -> list[int]:
        given = []
        for picked in reversed(picks):
            if left:
                given.append(int(picked[left]))
                left -= 1 + given[-1]
        return given

    return totals, budgets


def _probabilities(values: Sequence[float]) -> FloatArray:
    chances = real_array(values, "acceptance", 1).astype(np.float64)
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise InvalidInputError(
            f"acceptance is {values!r:.60}: give for each child a probability in [0, 1]"
        )
    return chances
