"""Tournament states of the slots below a slot, from the shape rule without a drafted tree."""

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
        State of the shape rule; None if nothing is drafted below.
    share : float
        Share of the wins of the parent slot.
    known : NodeState
        State in the tournament.
    branch : Branch
        Branch of the slot.
    """

    token: int
    state: Any
    share: float
    known: NodeState
    branch: Branch


def grown_by_rule(drafting: Drafting) -> ShapedDrafting | RuledDrafting:
    """Return `drafting` after checking that it grows by a rule with independent siblings.

    Raises
    ------
    InvalidInputError
        If the drafting does not grow by a rule.
    UnsupportedProblemError
        If siblings are not drawn independently.
    """
    if not isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        raise InvalidInputError(f"drafting must grow by a shape rule, got {drafting!r:.60}")
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
    """Yield the slots below a slot that can win with one of `tokens`.

    Parameters
    ----------
    rule : ShapeRule
    state : object
        State of the rule at the parent slot, which must have children.
    known : NodeState
        State of the parent slot in the tournament, with a score.
    p, q : ndarray, shape (V,)
        Distributions of target and draft after the parent slot.
    tokens : iterable of int
    ends : callable
        Maps a certain token and the state below it to whether the token is the end of a path.
    """
    siblings = siblings_below(rule.children(state, q), q)
    certain = {x: rule.below(state, q, at, x) for at, x in enumerate(siblings.certain.tolist())}
    last = [x for x, below in certain.items() if ends(x, below)]
    on = [x for x in certain if x not in last]
    drawn = range(len(certain), siblings.places)
    ending = [rule.ends(state, q, at) for at in drawn]
    rest = siblings.rest if ending else None
    branch = Branch(known, p, on, last, rest, ending.count(False), ending.count(True))
    tokens = list(tokens)
    kinds = [
        (end, draws, draws.masses() / ending.count(end))
        for end, draws in ((False, branch.draws), (True, branch.ending_draws))
        if draws is not None and not certain.keys() >= set(tokens)
    ]
    for x in tokens:
        if x in certain:
            if branch.certain[x] > 0.0:
                child = branch.child(x, True, x in last)
                yield SlotBelow(x, certain[x], branch.certain[x], child, branch)
            continue
        for end, draws, masses in kinds:
            if siblings.rest[x] <= 0.0 or masses[x] <= 0.0:
                continue
            child = draws.child(x)
            for at in (at for at, kind in zip(drawn, ending, strict=True) if kind == end):
                yield SlotBelow(x, rule.below(state, q, at, x), float(masses[x]), child, branch)
