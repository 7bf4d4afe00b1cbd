"""Shape rule for a fixed shape with certain and drawn children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otlp.decode.drafting.growing import Children, ShapeRule
from otlp.distribution import FloatArray
from otlp.numerics.top_tokens import top_tokens

Below = tuple[tuple[int, ...], tuple[int, ...]]
"""States of the certain children of a slot, most likely first, and of its drawn children."""


@dataclass(frozen=True)
class FixedShape(ShapeRule[int]):
    """Fixed shape; a state is the number of a distinct subtree below a slot.

    Parameters
    ----------
    below_states : tuple of (certain, drawn)
        For each state, the states of its children, which have smaller numbers: first of the
        certain children (the draft's most likely tokens, in this order), then of the children
        drawn i.i.d. from the rest.  State 0 is a leaf; the last state is the root.
    """

    below_states: tuple[Below, ...]

    @property
    def certain(self) -> bool:  # type: ignore[override]
        """Whether any slot has certain children."""
        return any(certain for certain, _ in self.below_states)

    @property
    def length(self) -> int:
        """Maximum path length."""
        heights: list[int] = []
        for certain, drawn in self.below_states:
            heights.append(1 + max((heights[state] for state in (*certain, *drawn)), default=-1))
        return heights[-1]

    def root(self) -> int | None:
        """Return the state of the whole shape."""
        return len(self.below_states) - 1 or None

    def children(self, state: int, q: FloatArray) -> Children:
        """Return the certain tokens and the number of drawn children of a slot."""
        certain, drawn = self.below_states[state]
        return Children(tuple(top_tokens(q, len(certain)).tolist()), len(drawn))

    def below(self, state: int, q: FloatArray, place: int, token: int) -> int | None:
        """Return the state below a child, or None for a leaf."""
        return self._child(state, q, place) or None

    def ends(self, state: int, q: FloatArray, place: int) -> bool:
        """Return whether a child is a leaf."""
        return not self._child(state, q, place)

    def _child(self, state: int, q: FloatArray, place: int) -> int:
        certain, drawn = self.below_states[state]
        known = min(len(certain), q.size)
        return certain[place] if place < known else drawn[place - known]


def fixed_shape(slots: Sequence[tuple[Sequence[int], Sequence[int]]]) -> FixedShape:
    """Build the rule of a shape; slots with equal subtrees share one state.

    Parameters
    ----------
    slots : sequence of (certain, drawn)
        Child slots of each slot, which have larger indices than the slot; slot 0 is the root.
    """
    numbers: dict[Below, int] = {((), ()): 0}
    states = [0] * len(slots)
    for slot in reversed(range(len(slots))):
        certain, drawn = (tuple(states[child] for child in kind) for kind in slots[slot])
        states[slot] = numbers.setdefault((certain, drawn), len(numbers))
    return FixedShape(tuple(numbers))
