"""Traversal verification: leaves first; a rejected subtree returns its mass to its parent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.post_order import PostOrder
from otlp.decode.verification.verification import OfTrees
from otlp.distribution import FloatArray
from otlp.numerics.positive_part import positive_part


@dataclass(frozen=True)
class Traversal(PostOrder, OfTrees):
    """Block verification on a tree, from the leaves to the root (Weng et al. 2025).

    A node with weight w must be accepted, itself or below, with probability w.  Its draws are tried
    in order.  The j-th draw, token x, receives the weight min(1, w p_x / q_x), where q is the
    distribution of the draw given the earlier draws.  If the whole subtree of the draw is rejected,
    the node continues with

        left = (w p - q)^+,   p <- left / sum(left),   w <- sum(left) / (sum(left) + 1 - w)

    for its later draws.  After the last draw the node itself is accepted with probability w, and
    the correction follows p; otherwise the parent continues.  On one path this is block
    verification.

    Notes
    -----
    O(V) per draw.  A token that an i.i.d. draft repeats has no residual the second time: the token
    is rejected, but counts as a draw.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), decode.Traversal())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.5866
    """

    name = "traversal"

    def attempts(
        self, tree: DraftTree, node: int, p: FloatArray, weight: float
    ) -> Iterator[tuple[int, float, FloatArray]]:
        """Yield the draws in order, then the node; see `PostOrder.attempts`."""
        children = tree.draws.get(node, np.empty(0, dtype=np.int64))
        for at, child in enumerate(children.tolist()):
            q = tree.schemes[node].next_distribution(tree.tokens[children[:at]])
            assert q is not None, "the draft drew this token"
            token = int(tree.tokens[child])
            yield child, next_weight(weight, float(p[token]), float(q[token])), p
            left, total = positive_part(weight, p, 1.0, q)
            if total <= 0.0:
                return
            p = left / total
            weight = total / (total + (1.0 - weight))
        yield node, weight, p
