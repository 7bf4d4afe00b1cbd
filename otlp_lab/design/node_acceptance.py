"""Mean optimal acceptance at a node by the number and kind of its children, and trees from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from otlp.distribution import FloatArray, renormalise_without
from otlp.numerics.top_tokens import top_tokens
from otlp_lab.design.mixed_nodes import Mixed
from otlp_lab.design.static_trees import split_nodes
from otlp_lab.design.text_renewal import WrittenText

MOST_CERTAIN, MOST_DRAWN = 8, 4
"""Maximum numbers of certain and drawn children of a mixed node."""


def mean_acceptance(texts: Iterable[WrittenText], certain: int, drawn: int) -> FloatArray:
    """Compute the mean optimal acceptance over the positions of texts.

    Parameters
    ----------
    texts : iterable of WrittenText
    certain, drawn : int
        Maximum numbers of certain children (the draft's most likely tokens) and of drawn children
        (i.i.d. draws from the rest).

    Returns
    -------
    ndarray, shape (certain + 1, drawn + 1)
        Mean acceptance by the numbers of certain and drawn children.

    Notes
    -----
    With certain tokens C and k draws from q, the optimum is p(C) + min_S p(S) + 1 - q(S)^k over
    sets S of the other tokens, at most 1 (max-flow, min-cut).  The best S is a prefix of the order
    of p/q.  O(V log V) per position and number of certain tokens.
    """
    total, places = np.zeros((certain + 1, drawn + 1)), 0
    draws = np.arange(1, drawn + 1)
    for text in texts:
        for _, p, q in text.places:
            places += 1
            top = top_tokens(q, certain)
            for sure in range(certain + 1):
                mass = float(p[top[:sure]].sum())
                total[sure] += mass
                rest = renormalise_without(q, top[:sure]) if sure else q
                if rest is None or not drawn:
                    continue
                support = np.flatnonzero(rest)
                order = support[np.argsort(p[support] / rest[support])]
                inside = np.append(0.0, np.cumsum(p[order]))
                covered = np.minimum(np.append(0.0, np.cumsum(rest[order])), 1.0)
                gaps = inside[:, None] + 1.0 - covered[:, None] ** draws
                total[sure, 1:] += np.minimum(gaps.min(axis=0), 1.0 - mass)
    return total / places


def best_mixed_branching(
    acceptance: FloatArray, nodes: int, depth: int
) -> tuple[tuple[tuple[int, int], ...], float]:
    """Find the best numbers of children by depth if every node has the mean acceptance.

    Parameters
    ----------
    acceptance : ndarray
        Result of `mean_acceptance`.
    nodes, depth : int
        Maximum number of drafted tokens, and maximum path length.

    Returns
    -------
    branching : tuple of (int, int)
        Certain and drawn children by depth, the argument of `mixed_tree`.
    worth : float
        Expected number of accepted tokens.
    """

    @cache
    def best(width: int, left: int, levels: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        found: tuple[float, tuple[tuple[int, int], ...]] = (0.0, ())
        if not levels:
            return found
        for sure, drawn in np.ndindex(*acceptance.shape):
            used = width * (sure + drawn)
            if width <= used <= left:
                worth, below = best(used, left - used, levels - 1)
                worth = float(acceptance[sure, drawn]) * (1.0 + worth)
                if worth > found[0] + 1e-12:
                    found = worth, ((sure, drawn), *below)
        return found

    worth, branching = best(1, nodes, depth)
    return branching, worth


def best_mixed_shape(
    acceptance: FloatArray, nodes: int, depth: int, ahead: float = 1.0
) -> tuple[Mixed, float]:
    """Find the best children by slot if every node has the mean acceptance.

    This is Sequoia's dynamic program with two kinds of children.  The acceptance of a certain child
    is the target's mean probability of the token of its rank; drawn children have equal shares of
    their additional acceptance.

    Parameters
    ----------
    acceptance : ndarray
        Result of `mean_acceptance`.
    nodes, depth : int
        Maximum number of drafted tokens, and maximum path length.
    ahead : float
        Weight of acceptance further down.  Values above 1 lead to deeper trees, for rules that
        accept paths as a whole.

    Returns
    -------
    shape : tuple
        Argument of `mixed_shape`.
    worth : float
        Expected number of accepted tokens, if `ahead` is 1.
    """
    ranks = np.diff(acceptance[:, 0])
    kinds = []
    for sure, drawn in np.ndindex(*acceptance.shape):
        if 0 < sure + drawn <= nodes:
            added = float(acceptance[sure, drawn] - acceptance[sure, 0])
            kinds.append((sure, [*ranks[:sure], *[added / max(drawn, 1)] * drawn]))
    best = np.zeros(nodes + 1)
    levels: list[list[tuple[int, list[int]]]] = []
    for _ in range(min(depth, nodes)):
        found = np.zeros(nodes + 1)
        chosen: list[tuple[int, list[int]]] = [(0, [])] * (nodes + 1)
        for sure, chances in kinds:
            totals, budgets = split_nodes(chances, ahead * best, left_out=-np.inf)
            for left in np.flatnonzero(totals > found + 1e-12):
                found[left] = totals[left]
                chosen[left] = sure, budgets(int(left))
        best = found
        levels.append(chosen)

    def shape(level: int, left: int) -> Mixed:
        if level < 0:
            return (), ()
        sure, budgets = levels[level][left]
        below = tuple(shape(level - 1, budget) for budget in budgets)
        return below[:sure], below[sure:]

    return shape(len(levels) - 1, nodes), float(best[nodes])
