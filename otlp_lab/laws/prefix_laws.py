"""The exact law of a round, one prefix at a time: draws below different prefixes are independent.

`round_law` lists whole draft trees, V^(K L) of them.  Whether an algorithm reaches a subtree
depends on the draws above and before it, never on those in it, so these can be listed when it is
reached: V^n for each prefix that n slots share.  The steps at a prefix are the algorithms' own code
(plans, attempts, scores and picks, block verification); the walk over the prefixes is written here,
and is tied to `round_law` where that can be had.
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
"""What the slots that fill one prefix ask for below it."""
Stars = list[tuple[DraftTree, dict[int, States], float]]
"""Ways to draw the children of one prefix: the one-level tree, what is below each, its chance."""


def prefix_law(
    draft: TabularModel, target: TabularModel, drafting: Drafting, verification: Verification
) -> RoundLaw:
    """Law of a round, by the cheapest exact enumeration that the algorithm has.

    Takes, gives and raises what `round_law` does, up to rounding; for a cascade the target is its
    `aimed_model`.
    """
    check_tabular(draft, target, drafting)
    check_round(draft, target, drafting, verification)
    if isinstance(verification, GreedyMultipath):
        return greedy_law(draft, target, drafting)
    if isinstance(drafting, (ShapedDrafting, RuledDrafting)):
        if isinstance(verification, Tournament):
            return tournament_law(draft, target, drafting)
        # the slots of a prefix are told apart by their states
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
    """Law of a round of top-down verification: one plan, and its draws, for each prefix.

    Target-only verification is the plan that looks at no draft.  Arguments as in `prefix_law`,
    which checks them.
    """
    stars = _star_lister(draft, drafting)
    tally = Tally(target, drafting.length)
    level: dict[tuple[tuple[int, ...], States], float] = {((), _root(drafting)): 1.0}
    while level:
        deeper: defaultdict[tuple[tuple[int, ...], States], float] = defaultdict(float)
        for (prefix, below), mass in level.items():
            p = target.distribution(prefix)
            found = stars(prefix, below)
            # how many tokens are drawn, and so the scheme, is the same in all of them
            scheme = found[0][0].schemes.get(0)
            if scheme is None:
                tally.add(prefix, mass, p)
                continue
            plan = top_down.plan(scheme, p) if isinstance(top_down, TopDown) else None
            for star, under, chance in found:
                conditional = p if plan is None else plan.conditional(star.drawn(0))
                for child, shapes in under.items():
                    token = int(star.tokens[child])
                    share = float(conditional[token])
                    if share > 0.0:
                        deeper[(*prefix, token), shapes] += mass * chance * share
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
    """Law of a round of a rule that tries the leaves first.

    A subtree that is tried with weight w accepts with probability w on average over its draws, and
    nothing outside it depends on these: what follows a rejection needs no look into it.  (Were that
    not so, the law would not sum to one.)  A token that is drawn again has its subtree tried twice,
    but either the first try is certain or the second has weight 0.
    """
    stars = _star_lister(draft, drafting)
    tally = Tally(target, drafting.length)

    level: dict[tuple[tuple[int, ...], States, float], float]
    level = {((), _root(drafting), 1.0): 1.0}
    while level:
        deeper: defaultdict[tuple[tuple[int, ...], States, float], float] = defaultdict(float)
        for (prefix, below, weight), mass in level.items():
            for star, under, chance in stars(prefix, below):
                reached = mass * chance
                for child, share, left in rule.attempts(
                    star, 0, target.distribution(prefix), weight
                ):
                    if child == 0:
                        tally.add(prefix, reached * share, left)
                    elif share > 0.0:
                        deeper[(*prefix, int(star.tokens[child])), under[child], share] += reached
                    reached *= 1.0 - share
                    if reached == 0.0:
                        break
        level = deeper
    return tally.law


def greedy_law(draft: TabularModel, target: TabularModel, drafting: Drafting) -> RoundLaw:
    """Law of a round of greedy multi-path: the highest of K draws of a path; verify each once.

    Which path is the highest depends on the others; how much of it is accepted does not.

    Notes
    -----
    V^L runs of block verification.
    """
    length = drafting.length
    tally = Tally(target, length)
    found = [one for one in _prefixes(draft, target, drafting) if len(one.path) == length]
    lower = 0.0
    for one in sorted(found, key=lambda one: one.state.rank):
        mass = one.chance * power_slope(lower, lower + one.chance, drafting.paths)
        add_selected(tally, target, one.path, one.weights, one.draft_distribution, mass)
        lower += one.chance
    return tally.law


class _Prefix(NamedTuple):
    """A prefix: the mass drafted, block's weights and the selection on the way."""

    path: tuple[int, ...]
    state: PathInterval
    chance: float
    weights: tuple[float, ...]
    above: tuple[Consecutive, ...]

    def draft_distribution(self, at: int) -> FloatArray:
        """Next-token distribution of the selected path after so many tokens, shape (V,)."""
        return self.above[at].draft_distribution()


def _prefixes(draft: TabularModel, target: TabularModel, drafting: Drafting) -> Iterator[_Prefix]:
    """Yield every prefix that can be drafted."""
    stack = [_Prefix((), whole_interval(drafting.paths), 1.0, (1.0,), ())]
    while stack:
        one = stack.pop()
        yield one
        if len(one.path) == drafting.length:
            continue
        p, q = target.distribution(one.path), draft.distribution(one.path)
        below = Consecutive(one.state, p, q)
        for token in np.flatnonzero(q).tolist():
            drawn, skewed = float(q[token]), float(q[token]) * below.ratio(token)
            weight = next_weight(one.weights[-1], float(p[token]), skewed)
            stack.append(
                _Prefix(
                    (*one.path, token), below.child(token), one.chance * drawn,
                    (*one.weights, weight), (*one.above, below),
                )
            )  # fmt: skip


def _root(drafting: ShapedDrafting | RuledDrafting) -> States:
    root = drafting.rule.root()
    return () if root is None else (root,)


# the algorithms of one comparison, one after the other, draw the same stars: twice as fast
@lru_cache(maxsize=1)
def _star_lister(
    draft: TabularModel, drafting: ShapedDrafting | RuledDrafting
) -> Callable[[tuple[int, ...], States], Stars]:
    """Lists, for a prefix and what the slots there ask for, the ways its children can be drawn."""
    rule = drafting.rule

    one_level = Shortened(rule, 1)

    @cache
    def stars(prefix: tuple[int, ...], states: States) -> Stars:
        found = []
        roots = [(1, state) for state in states]
        draft.start(np.array(prefix, dtype=np.int64))

        def one(chooser: Chooser) -> DraftTree:
            return grow(draft, chooser, one_level, drafting.kind, roots)

        for star, chance in enumerate_choices(one):
            under: dict[int, States] = {
                int(child): () for child in np.unique(star.slots.nodes[len(states) :])
            }
            for state, slots in zip(states, star.slots.children, strict=False):
                for place, slot in enumerate(slots):
                    child = int(star.slots.nodes[slot])
                    below = rule.below(state, star.distributions[0], place, int(star.tokens[child]))
                    if below is not None:
                        under[child] += (below,)
            found.append((star, under, chance))
        return found

    return stars
