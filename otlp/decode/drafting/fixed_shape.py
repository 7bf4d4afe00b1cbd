"""A shape that is fixed beforehand, as a rule: children that are certain, and that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otlp.decode.drafting.growing import Children, ShapeRule
from otlp.distribution import FloatArray
from otlp.numerics.top_tokens import top_tokens

Below = tuple[tuple[int, ...], tuple[int, ...]]
"""States of what is below a slot: below each certain child, the likeliest first, each drawn one."""


@dataclass(frozen=True)
class FixedShape(ShapeRule[int]):
    """A fixed shape; the state numbers what is drafted below a slot.

    Parameters
    ----------
    below_states : tuple of (certain, drawn)
        For each state, those of the children, which come before it: of the draft's most likely
        tokens, in this order, and of the tokens that are drawn i.i.d. from the rest.  State 0 is
        that of a leaf, the last one the root's.
    """

    below_states: tuple[Below, ...]

    @property
    def certain(self) -> bool:  # type: ignore[override]
        """Whether a slot has certain children."""
        return any(sure for sure, _ in self.below_states)

    @property
    def length(self) -> int:
        """Length of the longest path."""
        heights: list[int] = []
        for sure, drawn in self.below_states:
            heights.append(1 + max((heights[state] for state in (*sure, *drawn)), default=-1))
        return heights[-1]

    def root(self) -> int | None:
        """The whole shape."""
        return len(self.below_states) - 1 or None

    def children(self, state: int, q: FloatArray) -> Children:
        """As many of each kind as the slot has."""
        sure, drawn = self.below_states[state]
        return Children(tuple(top_tokens(q, len(sure)).tolist()), len(drawn))

    def below(self, state: int, q: FloatArray, place: int, token: int) -> int | None:
        """What is below this child."""
        return self._child(state, q, place) or None

    def ends(self, state: int, q: FloatArray, place: int) -> bool:
        """Whether nothing is."""
        return not self._child(state, q, place)

    def _child(self, state: int, q: FloatArray, place: int) -> int:
        sure, drawn = self.below_states[state]
        known = min(len(sure), q.size)
        return sure[place] if place < known else drawn[place - known]


def fixed_shape(slots: Sequence[tuple[Sequence[int], Sequence[int]]]) -> FixedShape:
    """Make the rule of a shape; slots below which the same is drafted have one state.

    Parameters
    ----------
    slots : sequence of (certain, drawn)
        For each slot the slots below it, which stand behind it; the first is the root.
    """
    numbers: dict[Below, int] = {((), ()): 0}
    states = [0] * len(slots)
    for slot in reversed(range(len(slots))):
        sure, drawn = (tuple(states[child] for child in kind) for kind in slots[slot])
        states[slot] = numbers.setdefault((sure, drawn), len(numbers))
    return FixedShape(tuple(numbers))
