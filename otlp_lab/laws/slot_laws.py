"""Exact laws of tournament verification, computed slot by slot instead of tree by tree.

The state of a slot and its probability Gamma to win (a share of its parent's wins) are functions of
its own path.  The accepted part of a path depends only on the path.  So every pair of slot and path
is visited once.  That the winner among all drafted slots has the probability Gamma is tested
against `round_law` on small models.
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
    """Compute the block efficiency, the sum of the accepted mass Gamma w over slots and paths.

    Parameters
    ----------
    draft, target : TabularModel
        Models with tables for at least L + 1 tokens.
    drafting : ShapedDrafting or RuledDrafting

    Raises
    ------
    InvalidInputError
        If the tables end too early, or `drafting` has another type.
    UnsupportedProblemError
        If siblings are not drawn independently.

    Notes
    -----
    One step for each pair of slot and path; feasible for larger models than `round_law`.
    """
    return sum(place.gamma * place.weights[-1] for place in _places(draft, target, drafting))


def tournament_law(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> RoundLaw:
    """Compute the law of a round: block verification of each path times its probability to win.

    Parameters and exceptions are those of `tournament_efficiency`.
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
    """Add the outcomes of block verification of a selected path to a tally.

    Parameters
    ----------
    tally : Tally
        Modified in place.
    target : TabularModel
    path : sequence of int
        Tokens of the path.
    weights, draft_distribution
        See `accept_prefix`.
    mass : float
        Probability that the path is selected.
    """
    targets = np.stack([target.distribution(path[:at]) for at in range(len(path) + 1)])

    def run(chooser: Chooser) -> Outcome:
        return accept_prefix(range(len(path) + 1), weights, targets, draft_distribution, chooser)

    for outcome, chance in enumerate_choices(run):
        tally.add(path[: outcome.node], mass * chance, outcome.correction)


class _Place(NamedTuple):
    """A slot with its path, probability to win and weights of block verification."""

    prefix: tuple[int, ...]
    gamma: float
    weights: tuple[float, ...]
    branches: tuple[Branch, ...]
    ends: bool

    def distribution(self, at: int) -> FloatArray:
        """Return the next-token distribution of the winner's path after `at` tokens, (V,)."""
        return self.branches[at].distribution()


def _places(
    draft: TabularModel, target: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> Iterator[_Place]:
    """Yield all pairs of slot and path that can win; see `tournament_efficiency`."""
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
