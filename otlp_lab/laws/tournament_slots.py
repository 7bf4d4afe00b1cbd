"""What the tournament makes of the slots below one, from the shape's rule, without a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from otlp.decode.drafting import Drafting, RuledDrafting, ShapedDrafting, ShapeRule
from otlp.decode.drafting.growing import siblings_below
from otlp.decode.verification.tournament import Branch, NodeState, Tournament
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError


class SlotBelow(NamedTuple):
    """A slot with its token.

    Attributes
    ----------
    token : int
    state : object
        Of the shape rule; None if nothing is drafted below.
    share : float
        Of the wins of the slot above it.
    known : NodeState
        Its state in the tournament.
    branch : Branch
        That it is on.
    """

    token: int
    state: Any
    share: float
    known: NodeState
    branch: Branch


def grown_by_rule(drafting: Drafting) -> ShapedDrafting | RuledDrafting:
    """Hand a drafting back, if it grows by a rule and its siblings are independent.

    Raises
    ------
    InvalidInputError, UnsupportedProblemError
        Saying which.
    """
    if not isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        raise InvalidInputError(f"drafting is {drafting!r:.60}: it must grow by a rule")
    Tournament().supports(drafting).require(Tournament.name)
    return drafting


def slots_below(
    rule: ShapeRule[Any],
    state: Any,
    known: NodeState,
    p: FloatArray,
    q: FloatArray,
    tokens: Iterable[int],
    ends: Callable[[int, Any], bool],
) -> Iterator[SlotBelow]:
    """Yield the slots below one that can win with one of some tokens.

    Parameters
    ----------
    rule : ShapeRule
    state : object
        Of the slot above, by the rule; with children.
    known : NodeState
        Its state in the tournament, with a score.
    p, q : ndarray, shape (V,)
        The target's and the draft's distributions there.
    tokens : iterable of int
    ends : callable
        From a certain token and the state below it to whether it only ends a path.
    """
    siblings = siblings_below(rule.children(state, q), q)
    certain = {x: rule.below(state, q, at, x) for at, x in enumerate(siblings.certain.tolist())}
    last = [x for x, below in certain.items() if ends(x, below)]
    on = [x for x in certain if x not in last]
    ways = range(len(certain), siblings.places)
    ending = [rule.ends(state, q, at) for at in ways]
    rest = siblings.rest if ending else None
    branch = Branch(known, p, on, last, rest, ending.count(False), ending.count(True))
    asked = list(tokens)
    kinds = [
        (end, draws, draws.masses() / ending.count(end))
        for end, draws in ((False, branch.draws), (True, branch.ending_draws))
        if draws is not None and not certain.keys() >= set(asked)
    ]
    for x in asked:
        if x in certain:
            if branch.certain[x] > 0.0:
                child = branch.child(x, True, x in last)
                yield SlotBelow(x, certain[x], branch.certain[x], child, branch)
            continue
        for end, draws, masses in kinds:
            if siblings.rest[x] <= 0.0 or masses[x] <= 0.0:
                continue
            child = draws.child(x)
            for at in (at for at, kind in zip(ways, ending, strict=True) if kind == end):
                yield SlotBelow(x, rule.below(state, q, at, x), float(masses[x]), child, branch)
