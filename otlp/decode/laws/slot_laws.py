"""Exact laws of tournament verification, slot by slot instead of tree by tree.

What a slot knows is a function of its own path, and so is the probability Gamma that it wins: its
share of its parent's wins.  How much of a path is accepted depends on the path alone.  So every
slot with every path is visited once.  That the winner, picked among all drafted slots, is one with
the probability Gamma is what `round_law` shows, where that can be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from otlp.decode.choosing import Chooser, enumerate_choices
from otlp.decode.drafting import RuledDrafting, ShapedDrafting
from otlp.decode.drafting.growing import siblings_below
from otlp.decode.laws.round_laws import RoundLaw, Tally, check_tabular
from otlp.decode.models.tabular import TabularModel
from otlp.decode.verification.block import accept_prefix
from otlp.decode.verification.tournament import Branch, NodeState, Tournament
from otlp.decode.verification.verification import Outcome
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError
from otlp.numerics.score_chains import root_score


def tournament_efficiency(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> float:
    """Block efficiency: the sum over slots and paths of the mass accepted there, Gamma w.

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

    Notes
    -----
    One step for each slot and path: this reaches larger models than `round_law`.
    """
    return sum(place.gamma * place.weights[-1] for place in _places(draft, target, drafting))


def tournament_law(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> RoundLaw:
    """Law of a round: block verification of every path, as often as it wins.

    Arguments and errors as in `tournament_efficiency`.
    """
    tally = None
    for place in _places(draft, target, drafting):
        tally = tally or Tally(target, drafting.length)
        if not place.ends:
            continue
        path = place.prefix
        targets = np.stack([target.distribution(path[:at]) for at in range(len(path) + 1)])

        def run(chooser: Chooser, place: _Place = place, targets: Any = targets) -> Outcome:
            nodes = range(len(place.weights))
            return accept_prefix(nodes, place.weights, targets, place.distribution, chooser)

        for outcome, chance in enumerate_choices(run):
            tally.add(path[: outcome.node], place.gamma * chance, outcome.correction)
    assert tally is not None, "the root is a place"
    return tally.law


class _Place(NamedTuple):
    """A slot with its path: how often it wins, and block verification's weights down to it."""

    prefix: tuple[int, ...]
    gamma: float
    weights: tuple[float, ...]
    branches: tuple[Branch, ...]
    ends: bool

    def distribution(self, at: int) -> FloatArray:
        """Next-token distribution of the winner's path after so many tokens, shape (V,)."""
        return self.branches[at].distribution()


def _places(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> Iterator[_Place]:
    """Every slot with every path that can win; see `tournament_efficiency`."""
    check_tabular(draft, target, drafting)
    if not isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        raise InvalidInputError(f"drafting is {drafting!r:.60}: it must grow by a rule")
    Tournament().supports(drafting).require(Tournament.name)
    rule: Any = drafting.rule

    def asked(prefix: tuple[int, ...], state: Any) -> Any:
        if state is None:
            return None
        q = drafting.adjust(draft.distribution(prefix))
        siblings = siblings_below(rule.children(state, q), q)
        return (q, siblings) if siblings.places else None

    stack: list[
        tuple[tuple[int, ...], Any, NodeState, float, tuple[float, ...], tuple[Branch, ...]]
    ]
    stack = [((), rule.root(), NodeState(root_score(), 1.0), 1.0, (), ())]
    while stack:
        prefix, state, known, gamma, above, branches = stack.pop()
        weights = (*above, known.weight)
        below = asked(prefix, state)
        yield _Place(prefix, gamma, weights, branches, below is None)
        if below is None or known.score is None:
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
        branch = Branch(known, p, on, last, rest, ending.count(False), ending.count(True))
        longer = weights, (*branches, branch)
        for token, child in states.items():
            found = branch.child(token, True, token in last)
            won = gamma * branch.certain[token]
            stack.append(((*prefix, token), child, found, won, *longer))
        for place, ends in enumerate(ending, start=sure):
            draws = branch.ending_draws if ends else branch.draws
            if draws is None:
                continue
            masses = draws.masses() / ending.count(ends)
            for token in np.flatnonzero(siblings.rest).tolist():
                child, found = rule.below(state, q, place, token), draws.child(token)
                won = gamma * float(masses[token])
                stack.append(((*prefix, token), child, found, won, *longer))
