"""Token trees: the drafted prefixes, without repetition, and how each level was drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import DraftScheme


def children_of(parents: Sequence[int]) -> list[list[int]]:
    """What stands below each place of a tree, in order; a parent stands before its children."""
    children: list[list[int]] = [[] for _ in parents]
    for place, parent in enumerate(parents[1:], start=1):
        children[parent].append(place)
    return children


def depths_of(parents: Sequence[int]) -> list[int]:
    """How far below the root, which stands first, each place of a tree is."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return depths


@dataclass(frozen=True, eq=False)
class TokenTree:
    """A tree of tokens that continue a context; a path from the root is a continuation.

    Attributes
    ----------
    tokens : ndarray, shape (N,), int64
        The token of each node.  Node 0, the root, stands for the context; its entry is -1.
    parents : ndarray, shape (N,), int64
        The parent of each node, which stands before it; -1 for the root.

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
        """Return the number of nodes N, the root included."""
        return self.tokens.size

    @cached_property
    def depths(self) -> IntArray:
        """Number of tokens from the root to each node, shape (N,)."""
        return np.array(depths_of(self.parents.tolist()), dtype=np.int64)

    def ancestry(self, node: int) -> list[int]:
        """Nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def path(self, node: int) -> IntArray:
        """Tokens from the root to `node`; empty for the root."""
        return self.tokens[self.ancestry(node)[1:]]


ROOT = TokenTree(np.array([-1]), np.array([-1]))
"""The end of the context alone."""


@dataclass(frozen=True, eq=False)
class Slots:
    """The places of a tree that were filled; equal draws fill several with one node.

    Attributes
    ----------
    nodes : ndarray, shape (S,), int64
        The node that each slot became.  Slot 0 is the root.
    parents : ndarray, shape (S,), int64
        The slot above each, which stands before it; -1 for the root.
    certain : ndarray, shape (S,), bool
        Whether the token was drafted for certain; else it was drawn.
    last : ndarray, shape (S,), bool
        Whether a drawn token ends its path, whatever it is.
    """

    nodes: IntArray
    parents: IntArray
    certain: Mask
    last: Mask

    @cached_property
    def children(self) -> list[list[int]]:
        """The slots below each slot, in order."""
        return children_of(self.parents.tolist())


@dataclass(frozen=True, eq=False)
class DraftTree(TokenTree):
    """What was drafted, and the distributions that it was drafted from.

    Attributes
    ----------
    schemes : mapping from node to DraftScheme
        How the children of each inner node were drawn.
    distributions : mapping from node to ndarray of shape (V,)
        The draft's next-token distribution q wherever it was asked, so at each inner node: the one
        that its children were drawn from.
    draws : mapping from node to ndarray of int64
        The children of each inner node in the order drawn.  I.i.d. draws may repeat a child.
    slots : Slots
        What was filled with these nodes.

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
        """Where each of the K drafted paths ends, shape (K,); equal paths end at the same node."""
        ends = [slot for slot, below in enumerate(self.slots.children) if not below]
        return self.slots.nodes[ends]

    def drawn(self, node: int) -> IntArray:
        """Tokens drawn at an inner node, in order, with repeats, shape (n,)."""
        return self.tokens[self.draws[node]]
