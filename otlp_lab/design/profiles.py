"""Accepted mass along a text, A/P of its next l tokens, for rules that need no look off the text.

Everything here is the algorithms' own code, asked about the one token that the text goes on with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from otlp.checks import is_a
from otlp.decode.drafting import Drafting
from otlp.decode.verification.tournament import NodeState
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.numerics.score_chains import root_score
from otlp_lab.design.text_renewal import WrittenText
from otlp_lab.laws.tournament_slots import grown_by_rule, slots_below

UNSEEN = 1e-10
"""Where A/P is less, what follows is left out: it falls with every token."""


def profile(text: WrittenText, length: int, along: Callable[[int], Iterator[float]]) -> FloatArray:
    """A/P by depth where a round may begin; a row ends where it falls below `UNSEEN`.

    Parameters
    ----------
    text : WrittenText
    length : int
        Of the longest round.
    along : callable
        From a place where a round begins to A/P at depths 1, 2, ...

    Returns
    -------
    ndarray, shape (T - length, length + 1)
    """
    found = np.zeros((text.starts(length), length + 1))
    found[:, 0] = 1.0
    for start, row in enumerate(found):
        for depth, mass in enumerate(along(start), 1):
            row[depth] = mass
            if mass < UNSEEN:
                break
    return found


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
    >>> from otlp_lab.design import WrittenText, tournament_profile
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import prefix_tree
    >>> tournament_profile(text, prefix_tree([2, 1]), 2)[0].tolist()      # so all is accepted
    [1.0, 1.0, 1.0]
    """
    is_a(text, WrittenText, "text")
    grown = grown_by_rule(drafting)
    text.starts(length)  # refuses what is no length of this text
    if drafting.length > length:
        raise InvalidInputError(
            f"length is {length}: the drafting has paths of {drafting.length} tokens"
        )
    rule: Any = grown.rule
    root = NodeState(root_score(), 1.0)

    def along(start: int) -> Iterator[float]:
        level: dict[tuple[Any, NodeState], float] = {(rule.root(), root): 1.0}
        for place in range(start, start + drafting.length):
            token, p, q = text.places[place]
            deeper: defaultdict[tuple[Any, NodeState], float] = defaultdict(float)
            for (state, known), mass in level.items():
                if state is None or known.score is None:
                    continue
                for slot in slots_below(rule, state, known, p, q, [token], _ends):
                    deeper[slot.state, slot.known] += mass * slot.share / float(p[token])
            yield sum(mass * known.weight for (_, known), mass in deeper.items())
            level = deeper

    return profile(text, length, along)


def _ends(token: int, below: Any) -> bool:
    return below is None
