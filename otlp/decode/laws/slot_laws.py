"""Exact block efficiency of tournament verification, slot by slot instead of tree by tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from otlp.decode.drafting import RuledDrafting, ShapedDrafting
from otlp.decode.drafting.growing import siblings_below
from otlp.decode.laws.round_laws import check_tabular
from otlp.decode.models.tabular import TabularModel
from otlp.decode.verification.tournament import Branch, Standing, Tournament
from otlp.errors import InvalidInputError
from otlp.numerics.score_chains import root_score

__all__ = ["tournament_efficiency"]


def tournament_efficiency(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> float:
    """Sum over all slots and paths of the mass that is accepted there, Gamma(path) w(path).

    What a slot knows is a function of its own path, so every slot with every path is visited once:
    this reaches larger models than `round_law`, and gives the same.

    Parameters
    ----------
    draft, target : TabularModel
        With tables for at least L + 1 tokens.
    drafting : ShapedDrafting or RuledDrafting

    Raises
    ------
    InvalidInputError
        If the tables end too early, or it is another drafting.
    UnsupportedProblemError
        If siblings are not drawn independently.
    """
    check_tabular(draft, target, drafting)
    if not isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        raise InvalidInputError(f"drafting is {drafting!r:.60}: it must grow by a rule")
    Tournament().supports(drafting).require(Tournament.name)
    rule: Any = drafting.rule
    total = 0.0
    stack: list[tuple[tuple[int, ...], Any, Standing, float]]
    stack = [((), rule.root(), Standing(root_score(), 1.0), 1.0)]

    def asked(prefix: tuple[int, ...], state: Any) -> Any:
        if state is None:
            return None
        q = drafting.adjust(draft.distribution(prefix))
        siblings = siblings_below(rule.children(state, q), q)
        return (q, siblings) if siblings.places else None

    while stack:
        prefix, state, standing, gamma = stack.pop()
        total += gamma * standing.weight
        below = asked(prefix, state)
        if below is None or standing.score is None:
            continue
        q, siblings = below
        sure, p = siblings.certain.size, target.distribution(prefix)
        on: list[int] = []
        last: list[int] = []
        states: dict[int, Any] = {}
        for place, token in enumerate(siblings.certain.tolist()):
            states[token] = rule.below(state, q, place, token)
            ends = asked((*prefix, token), states[token]) is None
            (last if ends else on).append(token)
        ending = [rule.ends(state, q, place) for place in range(sure, siblings.places)]
        rest = siblings.rest if ending else None
        branch = Branch(standing, p, on, last, rest, ending.count(False), ending.count(True))
        for token, child in states.items():
            found = branch.child(token, True, token in last)
            stack.append(((*prefix, token), child, found, gamma * branch.certain[token]))
        for place, ends in enumerate(ending, start=sure):
            draws = branch.ending_draws if ends else branch.draws
            if draws is None:
                continue
            masses = draws.masses() / ending.count(ends)
            for token in np.flatnonzero(siblings.rest).tolist():
                child, found = rule.below(state, q, place, token), draws.child(token)
                stack.append(((*prefix, token), child, found, gamma * float(masses[token])))
    return total
