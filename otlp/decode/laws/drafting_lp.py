"""The linear program of any drafting: what the best valid algorithm on its trees reaches."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import scipy

from otlp.decode.drafting import Drafting
from otlp.decode.laws.round_laws import check_tabular, draft_trees
from otlp.decode.models.model import check_pair
from otlp.decode.models.tabular import TabularModel
from otlp.errors import OTLPError

Path = tuple[int, ...]


def drafting_optimum(draft: TabularModel, target: TabularModel, drafting: Drafting) -> float:
    """Block efficiency of the best valid algorithm on the trees of a drafting.

    Maximise 1 + sum of A(x) over the prefixes x that can be drafted, where A(x) is the probability
    that x is accepted, itself or as the beginning of more, subject to A(empty) = 1,
    A(xy) <= A(x) p(y | x), and: the mass A(x) - sum_y A(xy) that is accepted at x and no deeper
    flows to x from the drafted trees that hold x, each of which gives its probability.

    Parameters
    ----------
    draft, target : TabularModel
        With tables for at least L + 1 tokens.
    drafting : Drafting
        Of any kind.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If the tables end too early.
    OTLPError
        If HiGHS finds no optimum.

    Notes
    -----
    An algorithm is valid if and only if the correction at x takes token y with the mass
    A(x) p(y | x) - A(xy), which is the second constraint: the multi-path LP of Thomas and Pal,
    Greedy Multi-Path Block Verification, Theorem 4.3, with the flow written out in place of its
    antichains.  One column for each tree, equal ones merged, and node: V^slots and more.
    """
    check_tabular(draft, target, drafting)
    check_pair(draft, target)
    chances: defaultdict[frozenset[Path], float] = defaultdict(float)
    for tree, chance in draft_trees(draft, drafting):
        nodes = (tuple(tree.path(node).tolist()) for node in range(len(tree)))
        chances[frozenset(nodes)] += chance
    number = {x: at for at, x in enumerate(sorted(set().union(*chances)))}
    size = len(number)
    flows = [(at, number[x]) for at, nodes in enumerate(chances) for x in nodes]
    trees, ends = np.array(flows).T
    below = [(number[x[:-1]], at, float(target.distribution(x[:-1])[x[-1]]))
             for x, at in number.items() if x]  # fmt: skip
    parents, children = np.array([pair[:2] for pair in below], dtype=np.int64).reshape(-1, 2).T
    gain = np.array([p for _, _, p in below])
    rows = np.arange(children.size)
    # A(xy) - A(x) p(y | x) <= 0
    fall = scipy.sparse.csr_matrix((np.ones(rows.size), (rows, children)), (rows.size, size))
    fall -= scipy.sparse.csr_matrix((gain, (rows, parents)), (rows.size, size))
    # A(x) - sum_y A(xy) - flow to x = 0, and each tree gives its probability
    kept = scipy.sparse.identity(size) - scipy.sparse.csr_matrix(
        (np.ones(rows.size), (parents, children)), (size, size)
    )
    columns = np.arange(trees.size)
    into = scipy.sparse.csr_matrix((np.ones(trees.size), (ends, columns)), (size, trees.size))
    given = scipy.sparse.csr_matrix(
        (np.ones(trees.size), (trees, columns)), (len(chances), trees.size)
    )
    found = scipy.optimize.linprog(
        np.append(-np.ones(size), np.zeros(trees.size)),
        A_ub=scipy.sparse.hstack([fall, scipy.sparse.csr_matrix((rows.size, trees.size))]),
        b_ub=np.zeros(rows.size),
        A_eq=scipy.sparse.bmat([[kept, -into], [None, given]]),
        b_eq=np.append(np.zeros(size), np.fromiter(chances.values(), np.float64)),
        method="highs",
    )
    if found.x is None:
        raise OTLPError(f"the linear program of the drafting failed: {found.message}")
    return -float(found.fun)
