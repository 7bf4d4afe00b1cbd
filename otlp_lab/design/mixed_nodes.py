"""Shapes of mixed nodes in which every slot has its own children."""

from __future__ import annotations

from typing import Any

from otlp.checks import whole_number
from otlp.decode.drafting import RuledDrafting
from otlp.decode.drafting.fixed_shape import fixed_shape
from otlp.decode.drafting.growing import check_slots
from otlp.errors import InvalidInputError

Mixed = tuple[tuple["Mixed", ...], tuple["Mixed", ...]]
"""Subtrees below a slot: of each certain child, the most likely first, and of each drawn child."""


def count_slots(shape: Any) -> int:
    """Check a shape and return its number of slots, including the root."""
    try:
        certain, drawn = (tuple(kind) for kind in shape)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "shape must have a pair for each slot, the subtrees of its certain and of its drawn "
            f"children, got {shape!r:.60}"
        ) from None
    return 1 + sum(count_slots(child) for child in (*certain, *drawn))


def mixed_shape(shape: Mixed) -> RuledDrafting:
    """Draft a tree of mixed nodes in which every slot has its own children; see `FixedShape`.

    Raises
    ------
    InvalidInputError
        If `shape` is not a nested pair of tuples, has only a root, or is too large or too deep.

    Examples
    --------
    A certain token with a drawn token below it, and a drawn sibling:

    >>> from otlp_lab.design.mixed_nodes import mixed_shape
    >>> leaf = ((), ())
    >>> mixed_shape(((((), (leaf,)),), (leaf,))).length
    2
    """
    try:
        check_slots(count_slots(shape))
    except RecursionError:
        raise InvalidInputError("shape is too deep for a tree of drafted tokens") from None
    slots: list[tuple[list[int], list[int]]] = [([], [])]
    waiting = [(0, shape)]
    for slot, below in waiting:
        for kind, children in zip(slots[slot], below, strict=True):
            for child in children:
                kind.append(len(slots))
                waiting.append((len(slots), child))
                slots.append(([], []))
    whole_number(len(slots) - 1, "the number of slots below the root")
    return RuledDrafting(fixed_shape(slots))
