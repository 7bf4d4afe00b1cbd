"""Drafting trees whose shape follows the draft: a rule decides, slot by slot, how to go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from otlp.checks import is_a
from otlp.decode.choosing import Chooser
from otlp.decode.drafting.drafting import Drafting
from otlp.decode.drafting.growing import Children, ShapeRule, grow
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.distribution import FloatArray
from otlp.drafts import IID, DraftScheme
from otlp.drafts.certain_and_drawn import CertainAndDrawn


@dataclass(frozen=True)
class RuledDrafting(Drafting):
    """A shape rule, with children that are certain or drawn i.i.d. from the rest.

    Parameters
    ----------
    rule : ShapeRule
        Sees the draft's distributions along a slot's own path, and nothing else.

    Raises
    ------
    InvalidInputError
        If `rule` is no `ShapeRule`.

    Examples
    --------
    >>> from otlp import decode
    >>> drafting = decode.mixed_tree([(1, 2), (0, 1)])
    >>> isinstance(drafting, decode.RuledDrafting), drafting.length
    (True, 2)
    """

    rule: ShapeRule[Any]
    kind: ClassVar[str] = "iid"
    """How children are drawn, none of them certain."""
    independent: ClassVar[bool] = True
    """Siblings are certain, or i.i.d. from the rest."""

    def __post_init__(self) -> None:
        is_a(self.rule, ShapeRule, "rule")

    @property
    def length(self) -> int:
        """Length L of the longest path that can be drafted."""
        return self.rule.length

    @property
    def kind_name(self) -> str:
        """The rule's name."""
        return type(self.rule).__name__

    @property
    def siblings(self) -> DraftScheme:
        """Two children: a certain one, if the rule may ask for that, and a drawn one."""
        if self.rule.certain:
            return CertainAndDrawn([0], np.array([0.0, 0.5, 0.5]), 1)
        return IID(np.full(3, 1.0 / 3.0), 2)

    def shortened(self, length: int) -> RuledDrafting:
        """The rule's answers down to a depth."""
        return self if length >= self.length else replace(self, rule=Shortened(self.rule, length))

    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Let the rule decide below every slot; see `Drafting.draft`."""
        return grow(model, chooser, self.rule)


@dataclass(frozen=True)
class Shortened(ShapeRule[tuple[int, Any]]):
    """Another rule down to a depth; the state is the depth left, and the other's."""

    rule: ShapeRule[Any]
    most: int

    @property
    def certain(self) -> bool:  # type: ignore[override]
        """As the other."""
        return self.rule.certain

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return self.most

    def root(self) -> tuple[int, Any] | None:
        """The other's, with the whole depth left."""
        return self._state(self.most, self.rule.root())

    def children(self, state: tuple[int, Any], q: FloatArray) -> Children:
        """As the other."""
        return self.rule.children(state[1], q)

    def below(
        self, state: tuple[int, Any], q: FloatArray, place: int, token: int
    ) -> tuple[int, Any] | None:
        """The other's, one depth less left."""
        return self._state(state[0] - 1, self.rule.below(state[1], q, place, token))

    def ends(self, state: tuple[int, Any], q: FloatArray, place: int) -> bool:
        """At the last depth, and where the other ends."""
        return state[0] == 1 or self.rule.ends(state[1], q, place)

    def _state(self, left: int, state: Any) -> tuple[int, Any] | None:
        return (left, state) if left and state is not None else None
