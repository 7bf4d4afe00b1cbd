"""How often the exact optimum accepts at one node, by how many children it has and of what kind."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from otlp.distribution import FloatArray, renormalise_without
from otlp.numerics.top_tokens import top_tokens
from otlp_lab.design.mixed_nodes import Mixed
from otlp_lab.design.static_trees import shared
from otlp_lab.design.text_renewal import WrittenText

MOST_CERTAIN, MOST_DRAWN = 8, 4
"""Children of each kind that a mixed node is tried with."""


def mean_acceptance(texts: Iterable[WrittenText], certain: int, drawn: int) -> FloatArray:
    """Mean optimal acceptance over the places of some texts.

    Parameters
    ----------
    texts : iterable of WrittenText
    certain, drawn : int
        The most children: the draft's likeliest tokens, and i.i.d. draws from the rest.

    Returns
    -------
    ndarray, shape (certain + 1, drawn + 1)
        By the number of certain and of drawn children.

    Notes
    -----
    With the tokens C certain and k draws from q, the optimum is p(C) + min_S p(S) + 1 - q(S)^k over
    sets S of the other tokens, at most 1 (max-flow, min-cut); the best S begins the order of p/q.
    O(V log V) a place and number of certain tokens.
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
    found: FloatArray = total / places
    return found


def best_mixed_branching(
    acceptance: FloatArray, nodes: int, depth: int
) -> tuple[tuple[tuple[int, int], ...], float]:
    """Certain and drawn children by depth that accept most, if every node accepts as the mean.

    Parameters
    ----------
    acceptance : ndarray
        Of `mean_acceptance`.
    nodes, depth : int
        The most drafted tokens, and the longest path.

    Returns
    -------
    branching : tuple of (int, int)
        As `mixed_tree` takes it.
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
    """Certain and drawn children by slot that accept most, if every node accepts as the mean.

    Sequoia's programme with two kinds of children: a certain one accepts what the target gives the
    token of its rank, the drawn ones share what they add equally.

    Parameters
    ----------
    acceptance : ndarray
        Of `mean_acceptance`.
    nodes, depth : int
        The most drafted tokens, and the longest path.
    ahead : float
        What is accepted further down counts so many times: more than once makes deeper trees, for
        rules that accept paths as a whole.

    Returns
    -------
    shape : tuple
        As `mixed_shape` takes it.
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
            totals, budgets = shared(chances, ahead * best, left_out=-np.inf)
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
