"""Mixed nodes: the draft's most likely tokens for certain, and more drawn from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.decode.drafting.growing import Children, ShapeRule, check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.distribution import FloatArray, IntArray, whole_number
from otlp.errors import InvalidInputError

__all__ = ["MixedNodes", "mixed_tree", "top_tokens"]


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
