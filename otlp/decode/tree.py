"""Token trees: the distinct drafted prefixes and the draws that produced them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import DraftScheme


def children_of(parents: Sequence[int]) -> list[list[int]]:
    """Return the children of each node, in order; each parent precedes its children."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        children[parent].append(node)
    return children


def depths_of(parents: Sequence[int]) -> list[int]:
    """Return the depth of each node; node 0 is the root, and each parent precedes its children."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return depths


@dataclass(frozen=True, eq=False)
class TokenTree:
    """A tree of tokens after a context; each path from the root is a continuation.

    Attributes
    ----------
    tokens : ndarray, shape (N,), int64
        The token of each node.  Node 0, the root, stands for the context; its entry is -1.
    parents : ndarray, shape (N,), int64
        The parent of each node; -1 for the root.  Parents precede their children.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import TokenTree
    >>> tree = TokenTree(np.array([-1, 5, 7, 7]), np.array([-1, 0, 0, 1]))
    >>> tree.depths.tolist(), tree.path(3)
    ([0, 1, 1, 2], array([5, 7]))
    """

    tokens: IntArray
    parents: IntArray

    def __len__(self) -> int:
        """Return the number of nodes N, including the root."""
        return self.tokens.size

    @cached_property
    def depths(self) -> IntArray:
        """Number of tokens from the root to each node, shape (N,)."""
        return np.array(depths_of(self.parents.tolist()), dtype=np.int64)

    def ancestry(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def path(self, node: int) -> IntArray:
        """Return the tokens from the root to `node`; empty for the root."""
        return self.tokens[self.ancestry(node)[1:]]


ROOT = TokenTree(np.array([-1]), np.array([-1]))
"""Tree with only a root: the end of the context."""


@dataclass(frozen=True, eq=False)
class Slots:
    """Filled slots of a tree; equal draws fill several slots with one node.

    Attributes
    ----------
    nodes : ndarray, shape (S,), int64
        The node of each slot.  Slot 0 is the root.
    parents : ndarray, shape (S,), int64
        The parent slot of each slot; -1 for the root.  Parents precede their children.
    certain : ndarray, shape (S,), bool
        Whether the token was drafted deterministically; otherwise it was drawn.
    last : ndarray, shape (S,), bool
        Whether a drawn token ends its path, whatever the token is.
    """

    nodes: IntArray
    parents: IntArray
    certain: Mask
    last: Mask

    @cached_property
    def children(self) -> list[list[int]]:
        """Child slots of each slot, in order."""
        return children_of(self.parents.tolist())


@dataclass(frozen=True, eq=False)
class DraftTree(TokenTree):
    """Drafted tokens and the distributions that they were drawn from.

    Attributes
    ----------
    schemes : mapping from node to DraftScheme
        Draft scheme of the children of each inner node.
    distributions : mapping from node to ndarray of shape (V,)
        The draft's next-token distribution q at each node where the draft model was evaluated.
        Includes every inner node; its children were drawn from this q.
    draws : mapping from node to ndarray of int64
        The children of each inner node in the order drawn.  I.i.d. draws may repeat a child.
    slots : Slots
        The slots filled with these nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.iid_paths(2, 2)
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> sorted(tree.draws)[0], tree.draws[0].size    # the children of the root, in the order drawn
    (0, 2)
    """

    schemes: Mapping[int, DraftScheme]
    distributions: Mapping[int, FloatArray]
    draws: Mapping[int, IntArray]
    slots: Slots

    @cached_property
    def leaves(self) -> IntArray:
        """Last node of each of the K drafted paths, shape (K,); equal paths share it."""
        ends = [slot for slot, below in enumerate(self.slots.children) if not below]
        return self.slots.nodes[ends]

    def drawn(self, node: int) -> IntArray:
        """Return the tokens drawn at an inner node, in order, with repeats, shape (n,)."""
        return self.tokens[self.draws[node]]
