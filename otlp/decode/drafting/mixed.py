"""Mixed nodes: the draft's most likely tokens for certain, and more drawn from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from otlp.checks import whole_number
from otlp.decode.drafting.growing import Children, ShapeRule, check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError

Mixed = tuple[tuple["Mixed", ...], tuple["Mixed", ...]]
"""What is below a slot: below each certain child, the likeliest first, and each drawn one."""
LEAF: Mixed = ((), ())


def top_tokens(q: FloatArray, count: int) -> IntArray:
    """The most likely tokens, most likely first, ties by the lowest id; O(V)."""
    count = min(count, q.size)
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    least = np.partition(q, q.size - count)[q.size - count]
    above, tied = np.flatnonzero(q > least), np.flatnonzero(q == least)
    found = np.concatenate((above, tied[: count - above.size]))
    order: IntArray = found[np.argsort(-q[found], kind="stable")]
    return order


@dataclass(frozen=True)
class MixedNodes(ShapeRule[int]):
    """Certain and drawn children by depth; the state is the depth.

    Parameters
    ----------
    branching : tuple of (int, int)
        At each depth, how many children are certain, the draft's most likely tokens, and how many
        are drawn i.i.d. from the rest.
    """

    certain: ClassVar[bool] = True
    branching: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return len(self.branching)

    def root(self) -> int:
        """Depth 0."""
        return 0

    def children(self, state: int, q: FloatArray) -> Children:
        """So many of each as the depth has."""
        sure, drawn = self.branching[state]
        return Children(tuple(top_tokens(q, sure).tolist()), drawn)

    def below(self, state: int, q: FloatArray, place: int, token: int) -> int | None:
        """One deeper."""
        return state + 1 if state + 1 < self.length else None

    def ends(self, state: int, q: FloatArray, place: int) -> bool:
        """At the last depth."""
        return state + 1 == self.length


@dataclass(frozen=True)
class MixedShape(ShapeRule[Mixed]):
    """Certain and drawn children by slot; the state is the shape below it.

    Parameters
    ----------
    shape : (certain, drawn)
        What is below the draft's most likely tokens, in this order, and below the tokens that are
        drawn i.i.d. from the rest; each again such a pair, and two empty tuples below a leaf.
    """

    certain: ClassVar[bool] = True
    shape: Mixed

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return _depth(self.shape)

    def root(self) -> Mixed | None:
        """The whole shape."""
        return None if self.shape == LEAF else self.shape

    def children(self, state: Mixed, q: FloatArray) -> Children:
        """So many of each as the slot has."""
        return Children(tuple(top_tokens(q, len(state[0])).tolist()), len(state[1]))

    def below(self, state: Mixed, q: FloatArray, place: int, token: int) -> Mixed | None:
        """The shape below this child."""
        found = self._child(state, q, place)
        return None if found == LEAF else found

    def ends(self, state: Mixed, q: FloatArray, place: int) -> bool:
        """Whether nothing is below."""
        return self._child(state, q, place) == LEAF

    def _child(self, state: Mixed, q: FloatArray, place: int) -> Mixed:
        sure = min(len(state[0]), q.size)
        return state[0][place] if place < sure else state[1][place - sure]


def _depth(shape: Mixed) -> int:
    return max((1 + _depth(child) for kind in shape for child in kind), default=0)


def count_slots(shape: Any) -> int:
    """Slots of a shape with its root, each checked."""
    try:
        certain, drawn = (tuple(kind) for kind in shape)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"shape is {shape!r:.60}: give a pair for each slot, what is below its certain and "
            "what is below its drawn children"
        ) from None
    return 1 + sum(count_slots(child) for child in (*certain, *drawn))


def mixed_shape(shape: Mixed) -> RuledDrafting:
    """Draft a tree of mixed nodes in which every slot has children of its own; see `MixedShape`.

    Raises
    ------
    InvalidInputError
        If it is no nested pair of tuples, has only a root, or is too large or too deep.

    Examples
    --------
    A certain token with a drawn one below it, and beside it a drawn token:

    >>> from otlp.decode import mixed_shape
    >>> leaf = ((), ())
    >>> mixed_shape(((((), (leaf,)),), (leaf,))).length
    2
    """
    try:
        slots = count_slots(shape)
    except RecursionError:
        raise InvalidInputError("shape is too deep to be a tree of drafted tokens") from None
    check_slots(slots)
    whole_number(slots - 1, "the number of slots below the root")
    return RuledDrafting(MixedShape(_frozen(shape)))


def _frozen(shape: Any) -> Mixed:
    certain, drawn = (tuple(map(_frozen, kind)) for kind in shape)
    return certain, drawn


def mixed_tree(branching: Sequence[tuple[int, int]]) -> RuledDrafting:
    """Draft a tree of mixed nodes.

    Parameters
    ----------
    branching : sequence of (int, int)
        For each depth, how many children of a node are certain (the draft's most likely tokens)
        and how many are drawn i.i.d. from the rest.

    Raises
    ------
    InvalidInputError
        If the sequence is empty, a depth has no children, or a number is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = decode.mixed_tree([(1, 1), (0, 1)])
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> int(tree.tokens[1]) == int(draft.distribution(()).argmax())
    True
    """
    try:
        pairs = [tuple(pair) for pair in branching]
    except TypeError:
        pairs = []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise InvalidInputError(
            f"branching is {branching!r:.60}: give for each depth a pair, how many children are "
            "certain and how many are drawn"
        )
    slots = level = 1
    for depth, (sure, drawn) in enumerate(pairs, start=1):
        whole_number(sure, f"the number of certain children at depth {depth}", 0)
        whole_number(drawn, f"the number of drawn children at depth {depth}", 0)
        whole_number(sure + drawn, f"the number of children at depth {depth}")
        level *= sure + drawn
        slots += level
        check_slots(slots)
    return RuledDrafting(MixedNodes(tuple((int(sure), int(drawn)) for sure, drawn in pairs)))
