"""Best static tree of N nodes if child j of a node is accepted with a fixed probability.

The worth of a tree is the sum over its slots of the product of these probabilities along the path
to the slot.  The best tree follows by dynamic programming over nodes, children and depth.

Source: Chen et al. 2024, Sequoia, section 4.1, with the probabilities of recursive rejection.  Here
the probabilities may be those of any rule, such as the exact optimum.
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
        Probability that the first, second, ... child of a node is the accepted child, each in
        [0, 1].  The length is the maximum number of children.
    nodes : int
        Number N of drafted tokens.
    depth : int
        Maximum path length.

    Returns
    -------
    shape : tuple of int
        Parent of each slot, the argument of `tree_shape`.
    worth : float
        Expected number of accepted tokens.

    Raises
    ------
    InvalidInputError
        If a number is less than 1, or `acceptance` contains values outside [0, 1].

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
    # best[m]: worth of at most m nodes below a node, for the current number of levels.
    best, levels = np.zeros(nodes + 1), []
    for _ in range(min(depth, nodes)):
        best, budgets = split_nodes(chances[:nodes].tolist(), best, left_out=0.0)
        levels.append(budgets)
    shape = [-1]
    stack = [(0, len(levels), nodes)]
    while stack:
        slot, left, budget = stack.pop()
        for below in levels[left - 1](budget) if left else ():
            shape.append(slot)
            stack.append((len(shape) - 1, left - 1, below))
    return tuple(shape), float(best[nodes])


def split_nodes(
    chances: Sequence[float], worth: FloatArray, left_out: float
) -> tuple[FloatArray, Callable[[int], list[int]]]:
    """Split nodes optimally among children with given acceptance probabilities.

    Parameters
    ----------
    chances : sequence of float
        Acceptance probabilities of the children, in order.
    worth : ndarray, shape (N + 1,)
        Worth of 0, ..., N nodes below a child.
    left_out : float
        Worth of a child without a node: 0, or minus infinity if all children must exist.

    Returns
    -------
    totals : ndarray, shape (N + 1,)
        Maximum worth of 0, ..., N nodes.
    budgets : callable
        Maps a number of nodes to the number of nodes below each child.
    """
    totals, picks = np.zeros(worth.size), []
    for chance in reversed(chances):
        found, picked = np.full(worth.size, left_out), np.zeros(worth.size, dtype=np.int64)
        for left in range(1, worth.size):
            # A child gets some nodes below it, and its later siblings get the rest.
            each = chance * (1.0 + worth[:left]) + totals[left - 1 :: -1]
            picked[left] = np.argmax(each)
            found[left] = each[picked[left]]
        totals = found
        picks.append(picked)

    def budgets(left: int) -> list[int]:
        shares = []
        for picked in reversed(picks):
            if left:
                shares.append(int(picked[left]))
                left -= 1 + shares[-1]
        return shares

    return totals, budgets


def _probabilities(values: Sequence[float]) -> FloatArray:
    chances = real_array(values, "acceptance", 1).astype(np.float64)
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise InvalidInputError(
            f"acceptance must be a probability in [0, 1] for each child, got {values!r:.60}"
        )
    return chances
