"""Growth of a draft tree by a rule that sees only a slot's own path in the draft model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from otlp.checks import is_a, token_ids, whole_number
from otlp.decode.choosing import Chooser
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree, Slots, TokenTree
from otlp.distribution import FloatArray, IntArray, renormalise_without
from otlp.drafts import IID, DraftScheme, Independent
from otlp.drafts.by_name import SchemeMaker, make_siblings
from otlp.drafts.certain_and_drawn import CertainAndDrawn
from otlp.errors import InvalidInputError

MOST_SLOTS = 100_000
"""Number of slots, including the root, at which a tree is refused; models accept far fewer."""

State = TypeVar("State")


def check_slots(slots: int) -> None:
    """Raise InvalidInputError if a tree is too large for any target model.

    Raises
    ------
    InvalidInputError
        If there are `MOST_SLOTS` slots or more.
    """
    if slots >= MOST_SLOTS:
        raise InvalidInputError(
            f"the tree would have {slots:,} slots: at most {MOST_SLOTS:,} can be drafted"
            if slots < 2**100
            else f"the tree would have more than {MOST_SLOTS:,} slots"
        )


@dataclass(frozen=True)
class Children:
    """Children to draft below a slot.

    Attributes
    ----------
    certain : tuple of int
        Distinct tokens that are drafted deterministically; their draft probability may be 0.
    drawn : int
        Number of further tokens drawn i.i.d. from the draft's distribution without the certain
        tokens; none is drawn if no probability remains.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.Children(certain=(7,), drawn=2)
    Children(certain=(7,), drawn=2)
    """

    certain: tuple[int, ...] = ()
    drawn: int = 0


class ShapeRule(ABC, Generic[State]):
    """Base class of rules that decide the children of each slot of a tree.

    The state of a slot is a function of its own path: it is computed from the root down, and the
    rule receives only the draft's distributions.  The rule cannot see the draws of other slots or
    the target.

    Examples
    --------
    >>> from otlp import decode
    >>> class WhileSure(decode.ShapeRule):     # one path of up to three tokens
    ...     length = 3
    ...     def root(self):
    ...         return 0
    ...     def children(self, depth, q):
    ...         return decode.Children(drawn=1 if depth < 3 and q.max() > 0.5 else 0)
    ...     def below(self, depth, q, place, token):
    ...         return depth + 1
    >>> decode.RuledDrafting(WhileSure()).length
    3
    """

    certain: ClassVar[bool] = False
    """Whether the rule may return certain tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Maximum path length L."""

    @abstractmethod
    def root(self) -> State | None:
        """Return the state of the root; None drafts nothing."""

    @abstractmethod
    def children(self, state: State, q: FloatArray) -> Children:
        """Return the children of a slot, given its state and the draft's distribution q there."""

    @abstractmethod
    def below(self, state: State, q: FloatArray, place: int, token: int) -> State | None:
        """Return the state of a child, or None if the path ends with the child.

        Parameters
        ----------
        state, q
            State and distribution of the parent, as in `children`.
        place : int
            Index of the child among its siblings; certain children come first.
        token : int
            Token of the child.
        """

    def ends(self, state: State, q: FloatArray, place: int) -> bool:
        """Return whether `below` is None for a drawn child, whatever its token.

        Such a child adds at most one token.  False is always a valid answer.
        """
        return False


class Siblings(NamedTuple):
    """Children of one slot: certain tokens, and the number of draws from the rest."""

    certain: IntArray
    rest: FloatArray
    drawn: int

    @property
    def places(self) -> int:
        """Number of children."""
        return int(self.certain.size) + self.drawn


def siblings_below(children: Children, q: FloatArray) -> Siblings:
    """Return the siblings below a slot with the draft's distribution q.

    Raises
    ------
    InvalidInputError
        If the rule did not return `Children`, or its certain tokens are outside the vocabulary or
        repeated.
    """
    is_a(children, Children, "the result of the shape rule's children")
    certain = token_ids(children.certain, "the certain tokens", q.size)
    if np.unique(certain).size < certain.size:
        raise InvalidInputError(
            f"the certain tokens of the shape rule must be distinct, got {children.certain!r:.60}"
        )
    drawn = whole_number(children.drawn, "the number of drawn children", 0)
    rest = renormalise_without(q, certain) if drawn and certain.size else q
    return Siblings(certain, q, 0) if rest is None else Siblings(certain, rest, drawn)


def grow(
    model: Model,
    chooser: Chooser,
    rule: ShapeRule[Any],
    kind: str | SchemeMaker = "iid",
    roots: Sequence[Any] | None = None,
) -> DraftTree:
    """Grow one tree by a rule; see `Drafting.draft`.

    Parameters
    ----------
    model : Model
    chooser : Chooser
    rule : ShapeRule
    kind : str or callable
        Draft scheme of the children of a node where none is certain; see `ShapedDrafting`.
    roots : sequence of states, optional
        States of the slots that the root node fills; by default one slot with the rule's root.

    Raises
    ------
    InvalidInputError
        If the rule returns children that cannot be drafted, or too many slots.
    """
    tokens, parents = [-1], [-1]
    states = [rule.root()] if roots is None else list(roots)
    slot_nodes, slot_parents = [0] * len(states), [-1] * len(states)
    certain, last = [False] * len(states), [False] * len(states)
    slots: list[list[int]] = [list(range(len(states)))]
    schemes: dict[int, DraftScheme] = {}
    distributions: dict[int, FloatArray] = {}
    draws: dict[int, IntArray] = {}
    level = [0]
    while inner := [n for n in level if any(states[slot] is not None for slot in slots[n])]:
        so_far = TokenTree(np.array(tokens), np.array(parents))
        found = model.distributions(so_far, np.array(inner))
        for node, q in zip(inner, found, strict=True):
            distributions[node] = q
            expanded = _expanded_slots(rule, {slot: states[slot] for slot in slots[node]}, q)
            if not expanded:
                continue
            check_slots(len(states) + sum(siblings.places for _, siblings in expanded))
            scheme = schemes[node] = _joint_scheme([siblings for _, siblings in expanded], q, kind)
            drawn = iter(_draw(scheme, q, chooser).tolist())
            node_of: dict[int, int] = {}
            order = []
            for slot, siblings in expanded:
                for place in range(siblings.places):
                    token = next(drawn, None)
                    if token is None:  # Without replacement there may be too few tokens.
                        break
                    if token not in node_of:
                        node_of[token] = len(tokens)
                        tokens.append(token)
                        parents.append(node)
                        slots.append([])
                    order.append(node_of[token])
                    slots[node_of[token]].append(len(states))
                    states.append(rule.below(states[slot], q, place, token))
                    slot_nodes.append(node_of[token])
                    slot_parents.append(slot)
                    certain.append(place < siblings.certain.size)
                    last.append(not certain[-1] and rule.ends(states[slot], q, place))
            draws[node] = np.array(order, dtype=np.int64)
        level = list(range(level[-1] + 1, len(tokens)))
    return DraftTree(
        np.array(tokens, dtype=np.int64),
        np.array(parents, dtype=np.int64),
        schemes,
        distributions,
        draws,
        Slots(np.array(slot_nodes), np.array(slot_parents), np.array(certain), np.array(last)),
    )


def _expanded_slots(
    rule: ShapeRule[Any], states: Mapping[int, Any], q: FloatArray
) -> list[tuple[int, Siblings]]:
    """Return the slots of a node that have children, and their siblings."""
    found = {
        slot: siblings_below(rule.children(state, q), q)
        for slot, state in states.items()
        if state is not None
    }
    return [(slot, siblings) for slot, siblings in found.items() if siblings.places]


def _joint_scheme(parts: Sequence[Siblings], q: FloatArray, kind: str | SchemeMaker) -> DraftScheme:
    """Return one draft scheme for the children of all slots of a node."""
    if not any(siblings.certain.size for siblings in parts):
        return make_siblings(kind, q, sum(siblings.drawn for siblings in parts))
    schemes = [CertainAndDrawn(*siblings) for siblings in parts]
    if len(schemes) == 1:
        return schemes[0]
    return Independent([draft for scheme in schemes for draft in scheme.independent_drafts])


def _draw(scheme: DraftScheme, q: FloatArray, chooser: Chooser) -> IntArray:
    """Draw one tuple of a scheme, in one call where the draws are i.i.d."""
    if isinstance(scheme, IID):
        return chooser.draws(q, scheme.n)
    if isinstance(scheme, CertainAndDrawn):
        return np.append(scheme.certain, chooser.draws(scheme.rest, scheme.drawn))
    drawn = np.empty(0, dtype=np.int64)
    for _ in range(scheme.n):
        rest = scheme.next_distribution(drawn)
        if rest is None:
            break
        drawn = np.append(drawn, chooser.choose(rest))
    return drawn
