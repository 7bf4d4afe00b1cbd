"""Exact laws of tournament verification, slot by slot instead of tree by tree.

What a slot knows is a function of its own path, and so is the probability Gamma that it wins: its
share of its parent's wins.  How much of a path is accepted depends on the path alone.  So every
slot with every path is visited once.  That the winner, picked among all drafted slots, is one with
the probability Gamma is what `round_law` shows, where that can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from otlp.decode.choosing import Chooser, enumerate_choices
from otlp.decode.drafting import RuledDrafting, ShapedDrafting
from otlp.decode.drafting.growing import siblings_below
from otlp.decode.laws.round_laws import RoundLaw, Tally, check_tabular
from otlp.decode.models.tabular import TabularModel
from otlp.decode.verification.block import accept_prefix
from otlp.decode.verification.tournament import Branch, NodeState
from otlp.decode.verification.verification import Outcome
from otlp.distribution import FloatArray
from otlp.numerics.score_chains import root_score
from otlp_lab.laws.tournament_slots import grown_by_rule, slots_below


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
        add_selected(tally, target, place.prefix, place.weights, place.distribution, place.gamma)
    assert tally is not None, "the root is a place"
    return tally.law


def add_selected(
    tally: Tally,
    target: TabularModel,
    path: Sequence[int],
    weights: Sequence[float],
    draft_distribution: Callable[[int], FloatArray],
    mass: float,
) -> None:
    """Add what block verification makes of a path that is selected with a probability.

    Parameters
    ----------
    tally : Tally
        To add to.
    target : TabularModel
    path : sequence of int
        Its tokens.
    weights, draft_distribution
        As in `accept_prefix`.
    mass : float
        The probability.
    """
    targets = np.stack([target.distribution(path[:at]) for at in range(len(path) + 1)])

    def run(chooser: Chooser) -> Outcome:
        return accept_prefix(range(len(path) + 1), weights, targets, draft_distribution, chooser)

    for outcome, chance in enumerate_choices(run):
        tally.add(path[: outcome.node], mass * chance, outcome.correction)


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
    rule: Any = grown_by_rule(drafting).rule

    def ends(prefix: tuple[int, ...], state: Any) -> bool:
        if state is None:
            return True
        q = draft.distribution(prefix)
        return not siblings_below(rule.children(state, q), q).places

    root = _Place((), 1.0, (1.0,), (), ends((), rule.root()))
    stack: list[tuple[_Place, Any, NodeState]] = [(root, rule.root(), NodeState(root_score(), 1.0))]
    while stack:
        place, state, known = stack.pop()
        yield place
        if place.ends or known.score is None:
            continue
        path = place.prefix
        p, q = target.distribution(path), draft.distribution(path)

        def ending(token: int, below: Any, path: tuple[int, ...] = path) -> bool:
            return ends((*path, token), below)

        for slot in slots_below(rule, state, known, p, q, range(q.size), ending):
            prefix = (*path, slot.token)
            longer = _Place(
                prefix,
                place.gamma * slot.share,
                (*place.weights, slot.known.weight),
                (*place.branches, slot.branch),
                ends(prefix, slot.state),
            )
            stack.append((longer, slot.state, slot.known))
