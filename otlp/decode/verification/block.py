"""Block verification: accept a prefix of a path by a joint rule for all its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfOnePath, Outcome
from otlp.distribution import FloatArray
from otlp.numerics.positive_part import positive_part


def next_weight(weight: float, p: float, q: float) -> float:
    """Return the weight of a prefix from its parent's weight w: min(1, w p/q).

    Source: Sun et al. 2024, Eq. 4.
    """
    return 1.0 if weight * p >= q else weight * p / q


def accept_prefix(
    path: Sequence[int],
    weights: Sequence[float],
    targets: FloatArray,
    draft_distribution: Callable[[int], FloatArray],
    chooser: Chooser,
) -> Outcome:
    """Run block verification on one path.

    Parameters
    ----------
    path : sequence of int
        Nodes of the path, starting at the root.
    weights : sequence of float
        Weight w of each prefix; 1 at the root.
    targets : ndarray, shape (N, V)
        The target's distribution at each node of the tree.
    draft_distribution : callable
        Function from an index into `path` to the draft's distribution at that node, shape (V,);
        called only where a longer prefix was rejected.
    chooser : Chooser

    Returns
    -------
    Outcome

    Notes
    -----
    Sun et al. 2024, Algorithm 2: the whole path is accepted with probability w.  Otherwise the next
    shorter prefix is accepted with probability sum(left) / (sum(left) + 1 - w), where
    left = (w p - q)^+; the correction follows left / sum(left).  Repeat towards the root.
    """
    last = len(path) - 1
    if chooser.accept(weights[last]):
        return Outcome(path[last], targets[path[last]])
    for at in range(last - 1, -1, -1):
        p = targets[path[at]]
        left, total = positive_part(weights[at], p, 1.0, draft_distribution(at))
        if total <= 0.0:
            # The residual is zero here; at the root this has probability zero.
            if at == 0:
                return Outcome(path[0], p)
            continue
        if at == 0 or chooser.accept(total / (total + (1.0 - weights[at]))):
            return Outcome(path[at], left / total)
    raise AssertionError("unreachable: the root is always accepted")


@dataclass(frozen=True)
class Block(OfOnePath):
    """Block verification of one path, optimal among single-path algorithms.

    Source: Sun et al. 2024; Thomas and Pal, Greedy Multi-Path Block Verification, Theorem 3.4.
    O(V) for each prefix visited from the end of the path.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(1, 2), decode.Block())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.5155
    """

    name = "block"

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Compute weights downwards, accept upwards; see `Verification.verify`."""
        path = tree.ancestry(int(tree.leaves[0])) if tree.leaves.size else [0]
        weights = [1.0]
        for node, child in pairwise(path):
            token = tree.tokens[child]
            p, q = targets[node, token], tree.distributions[node][token]
            weights.append(next_weight(weights[-1], float(p), float(q)))
        return accept_prefix(
            path, weights, targets, lambda at: tree.distributions[path[at]], chooser
        )
