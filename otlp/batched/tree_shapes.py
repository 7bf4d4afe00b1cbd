"""The shapes of drafted trees, and the order that their slots are worked on in.

A slot is a place of a tree that is filled with a token; draws that are equal fill several slots
with one node.  All of this is known on the host, so nothing waits for the device: slots of one
depth are worked on together, those of all rows at once, and rows may have different trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otlp.batched.checks import check_flags, check_tokens
from otlp.batched.rows import PADDING
from otlp.distribution import IntArray, Mask
from otlp.errors import InvalidInputError

ON, ENDING, DRAWN, LAST = 1, 2, 3, 4
"""Kinds of children: deterministic inner nodes and leaves; sampled ones; and sampled leaves."""


class Branching(NamedTuple):
    """Slots of one depth with children, as many kinds drawn below all; W at most.

    Attributes
    ----------
    slots : Tensor, shape (M,), int64
        Numbers b S + s of slots s in rows b.
    source : Tensor, shape (M,), int64
        Their places among the children of the generation above, side by side.
    children : Tensor, shape (M, W), int64
        Numbers of the slots below; B S stands for none.
    kinds : Tensor, shape (M, W), int64
        0 for none.
    certain, ending, drawn, last : bool
        Whether children of these kinds are among them, certain ones of either kind.
    """

    slots: Tensor
    source: Tensor
    children: Tensor
    kinds: Tensor
    certain: bool
    ending: bool
    drawn: bool
    last: bool


class Generation(NamedTuple):
    """All slots of one depth with children.

    Attributes
    ----------
    families : tuple of Branching
    parted : bool
        Whether some slot has children of two groups: certain ones that end a path, drawn ones that
        do, and all others.
    leaves, places : Tensor, shape (M,), int64
        Drawn children with nothing below them: their numbers, and their places among the children.
    """

    families: tuple[Branching, ...]
    parted: bool
    leaves: Tensor
    places: Tensor


class TreePlan(NamedTuple):
    """All that is known of B trees before anything is drafted, on one device.

    Attributes
    ----------
    generations : tuple of Generation
        By depth.
    ancestors : Tensor, shape (B, S, L + 1), int64
        Slots from the root down to each slot; -1 below it.
    parents : Tensor, shape (B, S), int64
    certain, ending : Tensor, shape (B, S), bool
        Certain slots, and those with nothing below them.
    """

    generations: tuple[Generation, ...]
    ancestors: Tensor
    parents: Tensor
    certain: Tensor
    ending: Tensor

    def has(self, kind: str) -> bool:
        """Whether some slot has children of a kind, as `Branching` calls it."""
        return any(getattr(one, kind) for gen in self.generations for one in gen.families)


@dataclass(frozen=True, eq=False)
class TreeShape:
    """Shapes of the trees of B rows, of at most S slots each.

    Parameters
    ----------
    parents : Tensor of int, shape (B, S)
        The slot above each, which stands before it.  Slot 0 is the root; its entry is -1, and so
        is that of slots which a row does not have.
    certain : Tensor of bool, shape (B, S), optional
        Whether the token of a slot was drafted for certain, a function of the draft's
        distributions; the others were drawn, each from the draft without its certain siblings.
        None are by default.
    last : Tensor of bool, shape (B, S), optional
        Drawn slots that nothing would be below whatever their tokens.  No is always a right
        answer, and the default; beside drawn siblings that go on, these then get more than they
        are worth.

    Raises
    ------
    InvalidInputError
        If a part has another type or shape, a slot stands before its parent, or something is below
        a slot that is `last`, or that is not there.

    Notes
    -----
    What is below a slot, and of which kind, may depend on the draft's distributions along its own
    path, and on nothing else: not on its siblings, nor on the target.  Keep the tensors on the CPU;
    they are read there, once for each device that the shape is used on.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> shape = batched.TreeShape(torch.tensor([[-1, 0, 0, 1], [-1, 0, 1, -1]]))
    >>> shape.batch, shape.slots          # the second row has a slot less
    (2, 4)
    """

    parents: Tensor
    certain: Tensor | None = None
    last: Tensor | None = None
    _plans: dict[torch.device, TreePlan] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_tokens(self.parents, "parents", "B, S")
        for name in ("certain", "last"):
            flags = getattr(self, name)
            if flags is not None:
                check_flags(flags, name, self.parents.shape)
        parents, certain, last = self._arrays
        slots = np.arange(parents.shape[1])
        there = parents != PADDING
        refused = (parents < PADDING) | (parents >= slots) | (there & (slots == 0))
        above = np.take_along_axis(there | (slots == 0), np.maximum(parents, 0) * ~refused, 1)
        refused |= there & ~above
        _refuse(refused, parents, "a slot's parent is a slot before it, and that of the root -1")
        _refuse(
            last & (certain | self._inner(parents)), parents,
            "only drawn slots with nothing below them are `last`",
        )  # fmt: skip

    @property
    def batch(self) -> int:
        """Number B of rows."""
        return int(self.parents.shape[0])

    @property
    def slots(self) -> int:
        """Number S of slots of a row, the root included."""
        return int(self.parents.shape[1])

    @cached_property
    def length(self) -> int:
        """Length L of the longest path."""
        return int(self.depths.max(initial=0))

    @cached_property
    def depths(self) -> IntArray:
        """Depth of each slot, shape (B, S); -1 where there is none."""
        parents = self._arrays[0]
        depths = np.full(parents.shape, -1)
        depths[:, 0] = 0
        for slot in range(1, parents.shape[1]):
            above = np.take_along_axis(depths, np.maximum(parents[:, slot : slot + 1], 0), 1)[:, 0]
            depths[:, slot] = np.where(parents[:, slot] >= 0, above + 1, -1)
        return depths

    def plan(self, device: torch.device) -> TreePlan:
        """How these trees are worked on there; made once."""
        if device not in self._plans:
            generations, ancestors = self._generations(device), self._ancestors(device)
            parents, certain, _ = self._arrays
            parts = parents, certain, certain & ~self._inner(parents)
            self._plans[device] = TreePlan(
                generations, ancestors, *(torch.from_numpy(part).to(device) for part in parts)
            )
        return self._plans[device]

    def _generations(self, device: torch.device) -> tuple[Generation, ...]:
        parents, certain, last = self._arrays
        batch, size = parents.shape
        depths, inner = self.depths.ravel(), self._inner(parents).ravel()
        rows = np.arange(batch)[:, None]
        above = np.where(parents >= 0, parents + rows * size, -1).ravel()
        kinds = np.where(certain, np.where(inner.reshape(parents.shape), ON, ENDING), DRAWN)
        kinds = np.where(last, LAST, kinds).ravel()
        # children of each slot stand together
        order = np.argsort(above, kind="stable")
        counts = np.bincount(above[above >= 0], minlength=above.size)
        starts = np.sum(above < 0) + np.cumsum(counts) - counts
        at = np.zeros(above.size, dtype=np.int64)
        at[depths == 0] = rows.ravel()
        none = above.size

        def on_device(numbers: IntArray) -> Tensor:
            return torch.from_numpy(numbers).to(device)

        found = []
        for depth in range(self.length):
            slots = np.flatnonzero(inner & (depths == depth))
            place = np.arange(counts[slots].max())
            there = place < counts[slots, None]
            below = np.where(there, starts[slots, None] + place, 0)
            children = np.where(there, order[below], none)
            of = np.append(kinds, 0)[children]
            has = {kind: (of == kind).any(1) for kind in (ON, ENDING, DRAWN, LAST)}
            groups = has[ENDING].astype(int) + has[LAST] + (has[ON] | has[DRAWN])
            families, leaves, places, so_far = [], [], [], 0
            for goes_on, ends in product((False, True), repeat=2):
                some = np.flatnonzero((has[DRAWN] == goes_on) & (has[LAST] == ends))
                if not some.size:
                    continue
                width = int(counts[slots[some]].max())
                mine, kind = children[some, :width], of[some, :width]
                family = Branching(
                    on_device(slots[some]),
                    on_device(at[slots[some]]),
                    on_device(mine),
                    on_device(kind),
                    bool((has[ON] | has[ENDING])[some].any()),
                    bool(has[ENDING][some].any()),
                    goes_on,
                    ends,
                )
                families.append(family)
                side_by_side = so_far + np.arange(mine.size).reshape(mine.shape)
                so_far += mine.size
                at[mine[kind > 0]] = side_by_side[kind > 0]
                leaf = (kind >= DRAWN) & ~np.append(inner, False)[mine]
                leaves.append(mine[leaf])
                places.append(side_by_side[leaf])
            parts = (on_device(np.concatenate(part)) for part in (leaves, places))
            found.append(Generation(tuple(families), bool((groups > 1).any()), *parts))
        return tuple(found)

    def _ancestors(self, device: torch.device) -> Tensor:
        parents, depths = self._arrays[0], self.depths
        found = np.full((*parents.shape, self.length + 1), -1)
        found[:, 0, 0] = 0
        rows = np.arange(parents.shape[0])
        for slot in range(1, parents.shape[1]):
            depth = depths[:, slot]
            some = rows[depth >= 0]
            found[some, slot] = found[some, parents[some, slot]]
            found[some, slot, depth[some]] = slot
        return torch.from_numpy(found).to(device)

    @cached_property
    def _arrays(self) -> tuple[IntArray, Mask, Mask]:
        parents: IntArray = self.parents.cpu().numpy().astype(np.int64)
        none = np.zeros(parents.shape, dtype=np.bool_)
        certain, last = (
            none if flags is None else flags.cpu().numpy() & (parents != PADDING)
            for flags in (self.certain, self.last)
        )
        return parents, certain, last

    @staticmethod
    def _inner(parents: IntArray) -> Mask:
        """Slots with children."""
        inner = np.zeros(parents.shape, dtype=np.bool_)
        rows, slots = np.nonzero(parents >= 0)
        inner[rows, parents[rows, slots]] = True
        return inner


def _refuse(refused: Mask, parents: IntArray, reason: str) -> None:
    """Raise `InvalidInputError`, naming the first slot that is refused."""
    if refused.any():
        row, slot = np.argwhere(refused)[0].tolist()
        raise InvalidInputError(f"row {row}, slot {slot} has parent {parents[row, slot]}: {reason}")
