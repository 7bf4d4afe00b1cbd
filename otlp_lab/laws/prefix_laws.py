"""Exact output law of a round, computed prefix by prefix.

`round_law` enumerates all V^(K L) draft trees.  Whether an algorithm reaches a subtree depends only
on the draws above and before the subtree, and draws below different prefixes are independent.  So
the draws of a subtree are enumerated only when the subtree is reached.  A slot is a position of a
draft token in the tree; n slots with the same prefix need V^n draws.  Each step at a prefix calls
the code of the algorithm itself.  Tests compare this module with `round_law` on small models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from otlp.decode.choosing import Chooser, enumerate_choices
from otlp.decode.drafting import (
    Drafting,
    RuledDrafting,
    ShapedDrafting,
)
from otlp.decode.drafting.growing import grow
from otlp.decode.drafting.ruled import Shortened
from otlp.decode.laws.round_laws import RoundLaw, Tally, check_tabular, round_law
from otlp.decode.models.tabular import TabularModel
from otlp.decode.round import check_round
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.greedy_multipath import (
    Consecutive,
    GreedyMultipath,
    PathInterval,
    whole_interval,
)
from otlp.decode.verification.post_order import PostOrder
from otlp.decode.verification.target_only import TargetOnly
from otlp.decode.verification.top_down import TopDown
from otlp.decode.verification.tournament import Tournament
from otlp.decode.verification.verification import Verification
from otlp.distribution import FloatArray
from otlp.numerics.power_slope import power_slope
from otlp_lab.laws.slot_laws import add_selected, tournament_law

States = tuple[Any, ...]
"""States of the rule that shapes the tree, one for each slot with the same prefix."""
Stars = list[tuple[DraftTree, dict[int, States], float]]
"""Possible draws of the children of a prefix: one-level tree, states by child, probability."""


def prefix_law(
    draft: TabularModel, target: TabularModel, drafting: Drafting, verification: Verification
) -> RoundLaw:
    """Compute the law of a round by the cheapest exact enumeration for the algorithm.

    Parameters, result (up to rounding) and exceptions are those of `round_law`.  For a cascade,
    pass its `transformed_model` as the target.
    """
    check_tabular(draft, target, drafting)
    check_round(draft, target, drafting, verification)
    if isinstance(verification, GreedyMultipath):
        return greedy_law(draft, target, drafting)
    if isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        if isinstance(verification, Tournament):
            return tournament_law(draft, target, drafting)
        # Slots of a prefix are grouped by their states, which must be hashable.
        if isinstance(drafting.rule, Hashable) and isinstance(drafting.rule.root(), Hashable):
            if isinstance(verification, (TopDown, TargetOnly)):
                return top_down_law(draft, target, drafting, verification)
            if isinstance(verification, PostOrder):
                return post_order_law(draft, target, drafting, verification)
    return round_law(draft, target, drafting, verification)


def top_down_law(
    draft: TabularModel,
    target: TabularModel,
    drafting: ShapedDrafting | RuledDrafting,
    top_down: TopDown | TargetOnly,
) -> RoundLaw:
    """Compute the law of a round of top-down verification, with one plan for each prefix.

    Target-only verification is the plan that ignores the drafts.  Parameters are those of
    `prefix_law`, which checks them.
    """
    stars = _star_lister(draft, drafting)
    tally = Tally(target, drafting.length)
    level: dict[tuple[tuple[int, ...], States], float] = {((), _root(drafting)): 1.0}
    while level:
        deeper: defaultdict[tuple[tuple[int, ...], States], float] = defaultdict(float)
        for (prefix, states), mass in level.items():
            p = target.distribution(prefix)
            draws = stars(prefix, states)
            # The number of drawn tokens and thus the scheme is the same in all draws.
            scheme = draws[0][0].schemes.get(0)
            if scheme is None:
                tally.add(prefix, mass, p)
                continue
            plan = top_down.plan(scheme, p) if isinstance(top_down, TopDown) else None
            for star, child_states, chance in draws:
                conditional = p if plan is None else plan.conditional(star.drawn(0))
                for child, below in child_states.items():
                    token = int(star.tokens[child])
                    share = float(conditional[token])
                    if share > 0.0:
                        deeper[(*prefix, token), below] += mass * chance * share
                undrafted = conditional.copy()
                undrafted[star.tokens[1:]] = 0.0
                tally.add(prefix, mass * chance, undrafted)
        level = deeper
    return tally.law


def post_order_law(
    draft: TabularModel,
    target: TabularModel,
    drafting: ShapedDrafting | RuledDrafting,
    rule: PostOrder,
) -> RoundLaw:
    """Compute the law of a round of a rule that attempts the leaves first.

    A subtree attempted with weight w accepts with probability w on average over its draws, and
    nothing outside the subtree depends on these draws.  So the steps after a rejection do not need
    the draws of the subtree.  The subtree of a token drawn twice is attempted twice, but either the
    first attempt succeeds with certainty or the second has weight 0.
    """
    stars = _star_lister(draft, drafting)
    tally = Tally(target, drafting.length)

    level: dict[tuple[tuple[int, ...], States, float], float]
    level = {((), _root(drafting), 1.0): 1.0}
    while level:
        deeper: defaultdict[tuple[tuple[int, ...], States, float], float] = defaultdict(float)
        for (prefix, states, weight), mass in level.items():
            for star, child_states, chance in stars(prefix, states):
                reached = mass * chance
                for child, share, residual in rule.attempts(
                    star, 0, target.distribution(prefix), weight
                ):
                    if child == 0:
                        tally.add(prefix, reached * share, residual)
                    elif share > 0.0:
                        prefix_below = (*prefix, int(star.tokens[child]))
                        deeper[prefix_below, child_states[child], share] += reached
                    reached *= 1.0 - share
                    if reached == 0.0:
                        break
        level = deeper
    return tally.law


def greedy_law(draft: TabularModel, target: TabularModel, drafting: Drafting) -> RoundLaw:
    """Compute the law of a round of greedy multi-path verification.

    Of K drawn paths, the path of the highest rank is selected.  The selection depends on the other
    paths, but the accepted part of the selected path does not, so each possible path is verified
    once.

    Notes
    -----
    The cost is V^L runs of block verification.
    """
    length = drafting.length
    tally = Tally(target, length)
    prefixes = [each for each in _prefixes(draft, target, drafting) if len(each.path) == length]
    lower = 0.0
    for each in sorted(prefixes, key=lambda prefix: prefix.state.rank):
        mass = each.chance * power_slope(lower, lower + each.chance, drafting.paths)
        add_selected(tally, target, each.path, each.weights, each.draft_distribution, mass)
        lower += each.chance
    return tally.law


class _Prefix(NamedTuple):
    """A prefix, its draft probability, and its state in selection and block verification."""

    path: tuple[int, ...]
    state: PathInterval
    chance: float
    weights: tuple[float, ...]
    steps: tuple[Consecutive, ...]

    def draft_distribution(self, at: int) -> FloatArray:
        """Return the next-token distribution of the selected path after `at` tokens, (V,)."""
        return self.steps[at].draft_distribution()


def _prefixes(draft: TabularModel, target: TabularModel, drafting: Drafting) -> Iterator[_Prefix]:
    """Yield all prefixes with positive draft probability."""
    stack = [_Prefix((), whole_interval(drafting.paths), 1.0, (1.0,), ())]
    while stack:
        prefix = stack.pop()
        yield prefix
        if len(prefix.path) == drafting.length:
            continue
        p, q = target.distribution(prefix.path), draft.distribution(prefix.path)
        step = Consecutive(prefix.state, p, q)
        for token in np.flatnonzero(q).tolist():
            drafted, selected = float(q[token]), float(q[token]) * step.ratio(token)
            weight = next_weight(prefix.weights[-1], float(p[token]), selected)
            stack.append(
                _Prefix(
                    (*prefix.path, token), step.child(token), prefix.chance * drafted,
                    (*prefix.weights, weight), (*prefix.steps, step),
                )
            )  # fmt: skip


def _root(drafting: ShapedDrafting | RuledDrafting) -> States:
    root = drafting.rule.root()
    return () if root is None else (root,)


# Cached because the algorithms of a comparison use the same draws: twice as fast.
@lru_cache(maxsize=1)
def _star_lister(
    draft: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> Callable[[tuple[int, ...], States], Stars]:
    """Return a function of prefix and states that lists the possible draws of the children."""
    rule = drafting.rule

    one_level = Shortened(rule, 1)

    @cache
    def stars(prefix: tuple[int, ...], states: States) -> Stars:
        draws = []
        roots = [(1, state) for state in states]
        draft.start(np.array(prefix, dtype=np.int64))

        def draw_star(chooser: Chooser) -> DraftTree:
            return grow(draft, chooser, one_level, drafting.kind, roots)

        for star, chance in enumerate_choices(draw_star):
            child_states: dict[int, States] = {
                int(child): () for child in np.unique(star.slots.nodes[len(states) :])
            }
            for state, slots in zip(states, star.slots.children, strict=False):
                for place, slot in enumerate(slots):
                    child = int(star.slots.nodes[slot])
                    below = rule.below(state, star.distributions[0], place, int(star.tokens[child]))
                    if below is not None:
                        child_states[child] += (below,)
            draws.append((star, child_states, chance))
        return draws

    return stars
