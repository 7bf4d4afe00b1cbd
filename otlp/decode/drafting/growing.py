"""Growing a tree slot by slot, by a rule that sees a slot's own path in the draft model alone."""

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
"""Drafted tokens of a round, with the root: a target model takes far fewer."""

State = TypeVar("State")


def check_slots(slots: int) -> None:
    """Refuse trees that no target model would take.

    Raises
    ------
    InvalidInputError
        If there are `MOST_SLOTS` or more.
    """
    if slots >= MOST_SLOTS:
        raise InvalidInputError(
            f"the tree would have {slots:,} slots: at most {MOST_SLOTS:,} can be drafted"
            if slots < 2**100
            else f"the tree would have more than {MOST_SLOTS:,} slots"
        )


@dataclass(frozen=True)
class Children:
    """What a slot asks for below it.

    Attributes
    ----------
    certain : tuple of int
        Tokens that are drafted for certain, all different; the draft may give them probability 0.
    drawn : int
        How many more are drawn i.i.d. from the draft's distribution without the certain ones;
        none are if nothing is left there.

    Examples
    --------
    >>> from otlp import decode
    >>> decode.Children(certain=(7,), drawn=2)
    Children(certain=(7,), drawn=2)
    """

    certain: tuple[int, ...] = ()
    drawn: int = 0


class ShapeRule(ABC, Generic[State]):
    """Decides how a tree goes on below each slot.

    The state of a slot is a function of its own path: it is folded from the root down, and the
    rule is given the draft's distributions and nothing else.  What other slots drew, and what the
    target thinks, it cannot see.

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
    """Whether it may ask for certain tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Length L of the longest path."""

    @abstractmethod
    def root(self) -> State | None:
        """State of the root; None drafts nothing."""

    @abstractmethod
    def children(self, state: State, q: FloatArray) -> Children:
        """What to draft below a slot, given its state and the draft's distribution q there."""

    @abstractmethod
    def below(self, state: State, q: FloatArray, place: int, token: int) -> State | None:
        """State of a child, or None if the path ends with it.

        Parameters
        ----------
        state, q
            The parent's, as in `children`.
        place : int
            The child's place among its siblings, the certain ones first.
        token : int
            The child's token.
        """

    def ends(self, state: State, q: FloatArray, place: int) -> bool:
        """Whether `below` says that the path ends with a drawn child, whatever its token.

        Such a child is worth one token at most.  No is always a right answer.
        """
        return False


class Siblings(NamedTuple):
    """The children of one slot: certain tokens, and so many draws from the rest."""

    certain: IntArray
    rest: FloatArray
    drawn: int

    @property
    def places(self) -> int:
        """How many children there are."""
        return int(self.certain.size) + self.drawn


def siblings_below(asked: Children, q: FloatArray) -> Siblings:
    """How a slot's children are drawn from the draft's distribution q there.

    Raises
    ------
    InvalidInputError
        If the rule gives something else, tokens outside the vocabulary, or one of them twice.
    """
    is_a(asked, Children, "what the shape rule asks for")
    certain = token_ids(asked.certain, "the certain tokens", q.size)
    if np.unique(certain).size < certain.size:
        raise InvalidInputError(
            f"the shape rule asks for the certain tokens {asked.certain!r:.60}: name each once"
        )
    drawn = whole_number(asked.drawn, "the number of drawn children", 0)
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
        How the children of a node are drawn where none is certain; see `ShapedDrafting`.
    roots : sequence of states, optional
        Of the slots that the first node fills; by default one, with the rule's root.

    Raises
    ------
    InvalidInputError
        If the rule asks for what cannot be drafted, or for too much.
    """
    tokens, parents = [-1], [-1]
    states = [rule.root()] if roots is None else list(roots)
    homes, above = [0] * len(states), [-1] * len(states)
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
            asking = _asking(rule, {slot: states[slot] for slot in slots[node]}, q)
            if not asking:
                continue
            check_slots(len(states) + sum(siblings.places for _, siblings in asking))
            scheme = schemes[node] = _together([siblings for _, siblings in asking], q, kind)
            drawn = iter(_draw(scheme, q, chooser).tolist())
            made: dict[int, int] = {}
            order = []
            for slot, siblings in asking:
                for place in range(siblings.places):
                    token = next(drawn, None)
                    if token is None:  # fewer tokens than children, without replacement
                        break
                    if token not in made:
                        made[token] = len(tokens)
                        tokens.append(token)
                        parents.append(node)
                        slots.append([])
                    order.append(made[token])
                    slots[made[token]].append(len(states))
                    states.append(rule.below(states[slot], q, place, token))
                    homes.append(made[token])
                    above.append(slot)
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
        Slots(np.array(homes), np.array(above), np.array(certain), np.array(last)),
    )


def _asking(
    rule: ShapeRule[Any], states: Mapping[int, Any], q: FloatArray
) -> list[tuple[int, Siblings]]:
    """The slots of a node that have children, and how these are drawn."""
    found = {
        slot: siblings_below(rule.children(state, q), q)
        for slot, state in states.items()
        if state is not None
    }
    return [(slot, siblings) for slot, siblings in found.items() if siblings.places]


def _together(asked: Sequence[Siblings], q: FloatArray, kind: str | SchemeMaker) -> DraftScheme:
    """The children of all slots that one node fills, as one scheme."""
    if not any(siblings.certain.size for siblings in asked):
        return make_siblings(kind, q, sum(siblings.drawn for siblings in asked))
    schemes = [CertainAndDrawn(*siblings) for siblings in asked]
    if len(schemes) == 1:
        return schemes[0]
    return Independent([draft for scheme in schemes for draft in scheme.independent_drafts])


def _draw(scheme: DraftScheme, q: FloatArray, chooser: Chooser) -> IntArray:
    """Draw one tuple of a scheme; all at once where the places do not differ."""
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
