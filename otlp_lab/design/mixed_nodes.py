"""Shapes of mixed nodes in which every slot has children of its own, as a design finds them."""

from __future__ import annotations

from typing import Any

from otlp.checks import whole_number
from otlp.decode.drafting import RuledDrafting
from otlp.decode.drafting.fixed_shape import fixed_shape
from otlp.decode.drafting.growing import check_slots
from otlp.errors import InvalidInputError

Mixed = tuple[tuple["Mixed", ...], tuple["Mixed", ...]]
"""What is below a slot: below each certain child, the likeliest first, and each drawn one."""


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
    """Draft a tree of mixed nodes in which every slot has children of its own; see `FixedShape`.

    Raises
    ------
    InvalidInputError
        If it is no nested pair of tuples, has only a root, or is too large or too deep.

    Examples
    --------
    A certain token with a drawn one below it, and beside it a drawn token:

    >>> from otlp_lab.design.mixed_nodes import mixed_shape
    >>> leaf = ((), ())
    >>> mixed_shape(((((), (leaf,)),), (leaf,))).length
    2
    """
    try:
        check_slots(count_slots(shape))
    except RecursionError:
        raise InvalidInputError("shape is too deep to be a tree of drafted tokens") from None
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
