"""Accepted mass along a text, A/P of its next l tokens, for rules that need no look off the text.

Everything here is the algorithms' own code, asked about the one token that the text goes on with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from otlp.checks import is_a
from otlp.decode.design.text_renewal import WrittenText
from otlp.decode.drafting import Drafting, RuledDrafting, ShapedDrafting, ShapeRule
from otlp.decode.drafting.growing import siblings_below
from otlp.decode.verification import Tournament
from otlp.decode.verification.tournament import Branch, NodeState
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.numerics.score_chains import root_score

UNSEEN = 1e-10
"""Where A/P is less, what follows is left out: it falls with every token."""


def tournament_profile(text: WrittenText, drafting: Drafting, length: int) -> FloatArray:
    """A/P of `tournament` on the trees of a drafting: `two-slice` on K paths, block for K = 1.

    A prefix of i.i.d. paths is accepted with the same mass whatever their length, so one pass with
    the longest gives the profiles of all lengths: ``profile[:, : l + 1]``.

    Parameters
    ----------
    text : WrittenText
    drafting : ShapedDrafting or RuledDrafting
        A shape rule whose slots always have children where `below` gives them a state: those of
        this library do.
    length : int
        At least the drafting's; profiles of the same length are over the same rounds.

    Returns
    -------
    ndarray, shape (T - length, length + 1)

    Raises
    ------
    InvalidInputError
        If it is another drafting, longer than `length`, or the text has no more tokens.
    UnsupportedProblemError
        If siblings are not drawn independently.

    Notes
    -----
    What a slot knows is a function of its own path: slots that know the same are counted, not
    listed.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode.design import WrittenText, tournament_profile
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import prefix_tree
    >>> tournament_profile(text, prefix_tree([2, 1]), 2)[0].tolist()      # so all is accepted
    [1.0, 1.0, 1.0]
    """
    is_a(text, WrittenText, "text")
    if not isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        raise InvalidInputError(f"drafting is {drafting!r:.60}: it must grow by a rule")
    Tournament().supports(drafting).require(Tournament.name)
    profile = np.zeros((text.starts(length), length + 1))
    if drafting.length > length:
        raise InvalidInputError(
            f"length is {length}: the drafting has paths of {drafting.length} tokens"
        )
    rule = drafting.rule
    profile[:, 0] = 1.0
    for start, row in enumerate(profile):
        level = [_Slots(rule.root(), 1.0, NodeState(root_score(), 1.0))]
        for depth in range(drafting.length):
            place = start + depth
            q = drafting.adjust(text.drafts[place])
            token, p = int(text.tokens[place]), text.targets[place]
            level = [below for slots in level for below in _below(rule, slots, token, p, q)]
            row[depth + 1] = sum(slots.mass * slots.known.weight for slots in level)
            if row[depth + 1] < UNSEEN:
                break
    return profile


class _Slots(NamedTuple):
    """Slots of one depth on the text that know the same: their state, Gamma/P of them all."""

    state: Any
    mass: float
    known: NodeState


def _below(
    rule: ShapeRule[Any], slots: _Slots, token: int, p: FloatArray, q: FloatArray
) -> Iterator[_Slots]:
    """The slots one token further along the text, below some that know the same."""
    state, mass, known = slots
    if state is None or known.score is None:
        return
    siblings = siblings_below(rule.children(state, q), q)
    sure, ways = siblings.certain.tolist(), range(siblings.certain.size, siblings.places)
    below = {x: rule.below(state, q, at, x) for at, x in enumerate(sure)}
    on = [x for x in sure if below[x] is not None]
    last = [x for x in sure if below[x] is None]
    ends = [rule.ends(state, q, at) for at in ways]
    rest = siblings.rest if ends else None
    branch = Branch(known, p, on, last, rest, ends.count(False), ends.count(True))
    if token in below:
        won = mass * branch.certain[token] / float(p[token])
        if won > 0.0:
            yield _Slots(below[token], won, branch.child(token, True, token in last))
        return
    counts = Counter(
        (rule.below(state, q, at, token), ending) for at, ending in zip(ways, ends, strict=True)
    )
    for (state_below, ending), count in counts.items():
        draws = branch.ending_draws if ending else branch.draws
        if draws is None or siblings.rest[token] <= 0.0:
            continue
        won = float(draws.masses()[token]) * (count / ends.count(ending))
        if won > 0.0:
            yield _Slots(state_below, mass * won / float(p[token]), draws.child(token))
