"""Accepted mass along a text, A/P of its next l tokens, for rules determined by the text.

The computation uses the algorithms' own code for the next token of the text.
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
"""Rows are truncated where A/P falls below this value; A/P decreases with every token."""


def profile(text: WrittenText, length: int, along: Callable[[int], Iterator[float]]) -> FloatArray:
    """Compute A/P by depth for each start of a round; rows are truncated below `UNSEEN`.

    Parameters
    ----------
    text : WrittenText
    length : int
        Maximum round length.
    along : callable
        Maps the start of a round to A/P at depths 1, 2, ...

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
    """Compute A/P of `tournament` on the trees of a drafting.

    `tournament` equals `two-slice` for K paths, and block verification for K = 1.  The accepted
    mass of a prefix of i.i.d. paths does not depend on the path length, so one pass with the
    longest paths computes the profiles of all lengths: ``profile[:, : l + 1]``.

    Parameters
    ----------
    text : WrittenText
    drafting : ShapedDrafting or RuledDrafting
        Drafting whose slots have children wherever `below` returns a state; this holds for all
        shape rules of this library.
    length : int
        Maximum round length, at least that of the drafting.  Profiles of the same length are over
        the same rounds.

    Returns
    -------
    ndarray, shape (T - length, length + 1)

    Raises
    ------
    InvalidInputError
        If `drafting` has another type or is longer than `length`, or the text has at most `length`
        tokens.
    UnsupportedProblemError
        If siblings are not drawn independently.

    Notes
    -----
    The state of a slot is a function of its own path, so slots with equal states are merged.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, tournament_profile
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # the draft equals the target
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import prefix_tree
    >>> tournament_profile(text, prefix_tree([2, 1]), 2)[0].tolist()      # everything is accepted
    [1.0, 1.0, 1.0]
    """
    is_a(text, WrittenText, "text")
    grown = grown_by_rule(drafting)
    text.starts(length)  # checks the length
    if drafting.length > length:
        raise InvalidInputError(
            f"length must be at least that of the drafting, {drafting.length} tokens, got {length}"
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
