"""Drafting of trees whose shape depends on the draft: a rule decides the children of each slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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
    """Drafting by a shape rule, with children that are certain or drawn i.i.d. from the rest.

    Parameters
    ----------
    rule : ShapeRule
        Rule for the children of a slot.  The rule sees only the draft's distributions along the
        slot's own path.

    Raises
    ------
    InvalidInputError
        If `rule` is not a `ShapeRule`.

    Examples
    --------
    >>> from otlp import decode
    >>> drafting = decode.mixed_tree([(1, 2), (0, 1)])
    >>> isinstance(drafting, decode.RuledDrafting), drafting.length
    (True, 2)
    """

    rule: ShapeRule[Any]
    kind = "iid"
    """Draft scheme of children where none is certain."""
    independent = True
    """Siblings are certain, or i.i.d. from the rest."""

    def __post_init__(self) -> None:
        is_a(self.rule, ShapeRule, "rule")

    @property
    def length(self) -> int:
        """Maximum path length L."""
        return self.rule.length

    @property
    def kind_name(self) -> str:
        """Class name of the rule."""
        return type(self.rule).__name__

    @property
    def siblings(self) -> DraftScheme:
        """Example with two children: one certain and one drawn, or two drawn i.i.d.

        The example has a certain child if the rule may return certain tokens.
        """
        if self.rule.certain:
            return CertainAndDrawn([0], np.array([0.0, 0.5, 0.5]), 1)
        return IID(np.full(3, 1.0 / 3.0), 2)

    def shortened(self, length: int) -> RuledDrafting:
        """Return the drafting with the rule cut at a depth."""
        return self if length >= self.length else replace(self, rule=Shortened(self.rule, length))

    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Grow a tree by the rule; see `Drafting.draft`."""
        return grow(model, chooser, self.rule)


@dataclass(frozen=True)
class Shortened(ShapeRule[tuple[int, Any]]):
    """Shape rule cut at a depth; the state is the remaining depth and the state of `rule`."""

    rule: ShapeRule[Any]
    most: int

    @property
    def certain(self) -> bool:  # type: ignore[override]
        """Whether `rule` may return certain tokens."""
        return self.rule.certain

    @property
    def length(self) -> int:
        """Maximum path length."""
        return self.most

    def root(self) -> tuple[int, Any] | None:
        """Return the root state of `rule` with the full depth remaining."""
        return self._state(self.most, self.rule.root())

    def children(self, state: tuple[int, Any], q: FloatArray) -> Children:
        """Return the children of `rule`."""
        return self.rule.children(state[1], q)

    def below(
        self, state: tuple[int, Any], q: FloatArray, place: int, token: int
    ) -> tuple[int, Any] | None:
        """Return the state of `rule` with the remaining depth reduced by one."""
        return self._state(state[0] - 1, self.rule.below(state[1], q, place, token))

    def ends(self, state: tuple[int, Any], q: FloatArray, place: int) -> bool:
        """Return whether this is the last depth or `rule` ends here."""
        return state[0] == 1 or self.rule.ends(state[1], q, place)

    def _state(self, remaining: int, state: Any) -> tuple[int, Any] | None:
        return (remaining, state) if remaining and state is not None else None
