"""Drafting of a round of tokens: nodes of a fixed tree, drawn in order from tables.

The shape of the tree is fixed before any token is drawn; paths are chains from the root.  The
models are tables of next-token distributions, ``tables[t]`` of shape (V, ..., V) with t + 1 axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from otlp.checks import as_array, whole_number
from otlp.distribution import FloatArray, IntArray, as_distribution
from otlp.errors import InvalidInputError, SizeLimitError

Tables: TypeAlias = Sequence[FloatArray]
"""One array per depth t, of shape (V^t, V); the row index is the prefix as a number in base V."""

Siblings: TypeAlias = Literal["iid", "without replacement", "most likely"]

MOST_TUPLES = 200_000
"""Maximum number of drafted tuples that are enumerated to check a sampler."""


class DraftedRound:
    """A tree of nodes whose tokens are drafted in order.

    Attributes
    ----------
    parents : sequence of int
        ``parents[i]`` is the parent of node i + 1; the root is node 0 and has no token.
    siblings : str
        How the children of a node are drawn.
    """

    parents: Sequence[int]
    siblings: Siblings

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node, starting with the root."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node; a round outputs at most one token more."""
        return max(self.depths)

    @property
    def most_siblings(self) -> int:
        """The largest number of children of one node."""
        return int(np.bincount(self.parents).max())

    def draw(
        self, tables: Tables, category: Callable[[FloatArray], IntArray], rows: int
    ) -> IntArray:
        """Draft tokens node by node; `category` draws from distributions of shape (rows, V)."""
        tokens = np.empty((rows, len(self.parents)), dtype=np.int64)
        prefixes = np.zeros((rows, len(self.parents) + 1), dtype=np.int64)
        for node, parent in enumerate(self.parents):
            earlier_siblings = [i for i in range(node) if self.parents[i] == parent]
            law = tables[self.depths[parent]][prefixes[:, parent]]
            tokens[:, node] = category(self._law(law, tokens, earlier_siblings))
            prefixes[:, node + 1] = prefixes[:, parent] * law.shape[-1] + tokens[:, node]
        return tokens

    def listed(self, tables: Tables) -> tuple[IntArray, FloatArray]:
        """Return all tuples of drafted tokens, shape (M, N), and their probabilities, shape (M,).

        Raises
        ------
        SizeLimitError
            If there are more than 200,000 tuples.
        """
        size, nodes = tables[0].shape[-1], len(self.parents)
        if float(size) ** nodes > MOST_TUPLES:
            raise SizeLimitError(
                f"there are {size}^{nodes} tuples of drafted tokens, more than {MOST_TUPLES:,}: "
                "check the sampler on a smaller tree or vocabulary"
            )
        tokens = np.indices((size,) * nodes).reshape(nodes, -1).T.copy()
        mass = np.ones(len(tokens))
        column = iter(range(nodes))

        def record(law: FloatArray) -> IntArray:
            node = next(column)
            mass[:] *= law[np.arange(len(tokens)), tokens[:, node]]
            return tokens[:, node]

        self.draw(tables, record, len(tokens))
        return tokens, mass

    def at_nodes(self, tables: Tables, tokens: IntArray) -> FloatArray:
        """Return the laws after the root and each node, (rows, N + 1, V); 0 beyond the tables."""
        size = tables[0].shape[-1]
        found = np.zeros((len(tokens), len(self.parents) + 1, size))
        prefixes = np.zeros((len(tokens), len(self.parents) + 1), dtype=np.int64)
        found[:, 0] = tables[0]
        for node, parent in enumerate(self.parents, 1):
            prefixes[:, node] = prefixes[:, parent] * size + tokens[:, node - 1]
            if self.depths[node] < len(tables):
                found[:, node] = tables[self.depths[node]][prefixes[:, node]]
        return found

    def rule_arguments(
        self, tokens: IntArray, p: FloatArray, q: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the arguments passed to a rule for rows of drafted tokens."""
        return tokens, p, q

    def _law(self, law: FloatArray, tokens: IntArray, earlier_siblings: list[int]) -> FloatArray:
        if self.siblings == "iid" or (self.siblings != "most likely" and not earlier_siblings):
            return law
        left = law.copy()
        np.put_along_axis(left, tokens[:, earlier_siblings], 0.0, axis=1)
        if self.siblings == "most likely":
            left[:] = np.arange(left.shape[1]) == left.argmax(axis=1)[:, None]
            return left
        # Tuples of probability zero are listed too and may leave no mass.
        total = left.sum(1, keepdims=True)
        left /= np.where(total > 0.0, total, 1.0)
        return left


@dataclass(frozen=True)
class DraftedTree(DraftedRound):
    """A draft tree of fixed shape; the token of each node is drawn from the draft distribution.

    Parameters
    ----------
    parents : sequence of int
        ``parents[i]`` is the parent of node i + 1; the root is node 0 and has no token.
    siblings : str
        "iid" (children of a node drawn independently), "without replacement", or "most likely"
        (the children are the most likely draft tokens in order, without randomness).

    Raises
    ------
    InvalidInputError
        If a parent comes after its child, there is no node, or `siblings` is not one of the three.

    Notes
    -----
    A rule over a tree receives ``draft_tokens`` of shape (N,), node by node, and ``p`` and ``q`` of
    shape (N + 1, V): the distributions after the root and after each node.

    Examples
    --------
    >>> from otlp.auditing import DraftedTree
    >>> tree = DraftedTree([0, 0, 1], siblings="without replacement")
    >>> tree.depths, tree.most_siblings
    ((0, 1, 1, 2), 2)
    """

    parents: Sequence[int]
    siblings: Siblings = "iid"

    def __post_init__(self) -> None:
        """Check that parents come before children."""
        if isinstance(self.parents, str) or not isinstance(self.parents, Sequence):
            raise InvalidInputError(
                f"parents is a {type(self.parents).__name__}: it must be a list such as [0, 0, 1]"
            )
        parents = tuple(whole_number(p, f"parents[{i}]", 0) for i, p in enumerate(self.parents))
        if not parents or any(parent > i for i, parent in enumerate(parents)):
            raise InvalidInputError(
                f"parents is {list(parents)}: parents[i] is the parent of node i + 1, so it must "
                "be at most i, and there must be at least one node"
            )
        if self.siblings not in get_args(Siblings):
            raise InvalidInputError(
                f"siblings is {self.siblings!r}: it must be one of {', '.join(get_args(Siblings))}"
            )
        object.__setattr__(self, "parents", parents)

    def __str__(self) -> str:
        """Describe the tree."""
        return (
            f"a tree of {len(self.parents)} nodes, depth {self.depth} (parents "
            f"{list(self.parents)}), siblings {self.siblings}"
        )


@dataclass(frozen=True)
class DraftedPaths(DraftedRound):
    """K independently drafted paths of L tokens.

    Parameters
    ----------
    paths : int
        Number of paths, K.
    length : int
        Number of tokens per path, L.

    Raises
    ------
    InvalidInputError
        If `paths` or `length` is not a positive integer.

    Notes
    -----
    A rule over paths receives ``draft_tokens`` of shape (K, L), ``p`` of shape (K, L + 1, V) and
    ``q`` of shape (K, L, V).

    Examples
    --------
    >>> from otlp.auditing import DraftedPaths
    >>> paths = DraftedPaths(paths=2, length=3)
    >>> paths.depth, len(paths.parents)
    (3, 6)
    """

    paths: int
    length: int

    def __post_init__(self) -> None:
        """Check both numbers and set the parents of the nodes."""
        paths, length = whole_number(self.paths, "paths", 1), whole_number(self.length, "length", 1)
        parents = [
            k * length + level if level else 0 for k in range(paths) for level in range(length)
        ]
        object.__setattr__(self, "parents", tuple(parents))
        object.__setattr__(self, "siblings", "iid")

    def __str__(self) -> str:
        """Describe the paths."""
        if self.paths == 1:
            return f"one path of {self.length} tokens from the draft model"
        return f"{self.paths} i.i.d. paths of {self.length} tokens from the draft model"

    def rule_arguments(
        self, tokens: IntArray, p: FloatArray, q: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the arguments passed to a rule for rows of drafted tokens."""
        shape, size = (len(tokens), self.paths, self.length), p.shape[-1]

        def along_paths(values: FloatArray) -> FloatArray:
            root = np.broadcast_to(values[:, None, :1], (*shape[:2], 1, size))
            return np.concatenate([root, values[:, 1:].reshape(*shape, size)], axis=2)

        return tokens.reshape(shape), along_paths(p), along_paths(q)[:, :, :-1]


def as_tables(tables: Sequence[npt.ArrayLike], depth: int, name: str) -> list[FloatArray]:
    """Check tables of next-token distributions; return the first `depth`, of shape (V^t, V).

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If there are too few tables, a table has the wrong shape, or a row is not a distribution.
    """
    if not isinstance(tables, Sequence) or isinstance(tables, str) or len(tables) < depth:
        what = f"{len(tables)} tables" if isinstance(tables, Sequence) else type(tables).__name__
        raise InvalidInputError(
            f"{name} is {what}: it must be a list of at least {depth} tables, the distributions "
            "after prefixes of 0, 1, ... tokens, of shape (V,), (V, V), ..."
        )
    found: list[FloatArray] = []
    size = 0
    for level, given in enumerate(tables[:depth]):
        table = as_array(given, f"{name}[{level}]")
        size = size or table.size
        if table.shape != (size,) * (level + 1):
            raise InvalidInputError(
                f"{name}[{level}] has shape {table.shape}: it must be {(size,) * (level + 1)}"
            )
        # Pass the rows of a tensor as tensors: the tolerance of a sum depends on their dtype.
        rows = (given if hasattr(given, "reshape") else table).reshape(-1, size)
        found.append(np.stack([as_distribution(row) for row in rows]))
    return found
