"""Tournament verification: the leaves of a drafted tree play for the path that is verified.

Every leaf of the tree gets a score, and block verification runs along the path of the largest.
What a slot of the tree knows is a function of its own path: the distribution function F of the
largest score below it, and the law of that score given that it wins, over one coordinate.

- Independent siblings get F^h, h their shares of the wins: the maximum has F, and each wins with
  probability h whatever the score.  A certain token's share is what the target wants of it; the
  drawn ones share the rest equally.
- A certain token with nothing below it needs no score: it wins where the others score low.
- The tokens of a drawn slot must mix to its F.  The two-slice rule (`multipath_martingale`) cuts F
  at one place and gives token x shares of both slices, so that its wins lie as near as they can to
  what the target wants.

With K i.i.d. paths that is `martingale`; on certain tokens it is to sample from the target, and see
whether that was drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import accept_prefix, next_weight
from otlp.decode.verification.verification import Outcome, Verification
from otlp.distribution import FloatArray, renormalise_without
from otlp.errors import Capability
from otlp.numerics.score_chains import (
    Score,
    best_score,
    powered,
    root_score,
    sliced,
    slices,
    threshold,
    win_place,
)
from otlp.numerics.two_slice import balance, shares, skewed

__all__ = ["Branch", "Standing", "Tournament"]

FLAT = 1e-12
"""How near to one counts as one: means of the slices."""
NEGLIGIBLE = 1e-30
"""A share of the wins that is as good as none; validity does not depend on it."""
EXHAUSTED = 1e-15
"""What is left of a law, from which nothing can be told any more."""


@dataclass(frozen=True, eq=False)
class Standing:
    """What a slot knows.

    Attributes
    ----------
    score : Score or None
        Of the largest score below the slot; None if it never wins.
    weight : float
        Block verification's weight of the slot's path.
    """

    score: Score | None
    weight: float


class Branch:
    """The children of one slot: their shares of the wins, and what each of them knows.

    Parameters
    ----------
    standing : Standing
        Of the slot, with a score.
    p : ndarray, shape (V,)
        The target's distribution there.
    certain, ending : tuple of int
        Certain tokens below which more is drafted, and those that only end a path.
    rest : ndarray, shape (V,), or None
        What the others are drawn from, without the certain tokens; None if none are.
    drawn : int
        How many are drawn.
    """

    def __init__(
        self,
        standing: Standing,
        p: FloatArray,
        certain: Sequence[int],
        ending: Sequence[int],
        rest: FloatArray | None,
        drawn: int,
    ) -> None:
        assert standing.score is not None
        self.weight, self.p, self.rest, self.drawn = standing.weight, p, rest, drawn
        tokens = np.array([*certain, *ending], dtype=np.int64)
        wanted = self.weight * p[tokens]
        others = 0.0
        if rest is not None:
            undrafted = p.copy()
            undrafted[tokens] = 0.0
            others = (1.0 - self.weight) + self.weight * float(undrafted.sum())
        elif not wanted.any():
            wanted = np.ones(tokens.size)
        wanted[wanted < NEGLIGIBLE * (wanted.sum() + others)] = 0.0
        total = float(wanted.sum()) + others
        self.certain = dict(zip(tokens.tolist(), (wanted / total).tolist(), strict=True))
        self.ending = [(token, self.certain[token]) for token in ending if self.certain[token]]
        last, inner = sum(share for _, share in self.ending), standing.score
        inner_share = sum(self.certain[token] for token in certain) + others / total
        self.end: Score | None = None
        self.inner: Score | None = inner
        if self.ending and inner_share > EXHAUSTED:
            cell, offset = win_place(inner, last)
            below, bottom = slices(inner, cell, offset)[0], float(np.exp(inner.left[-1, 0]))
            self.end = sliced(inner, cell, offset, bottom / below, 1.0 / below, 0.0)
            self.inner = sliced(inner, cell, offset, below, 0.0, 1.0)
        elif self.ending:
            self.end, self.inner = inner, None
        self.inner_share = inner_share
        self.drawn_share = others / total if rest is not None else 0.0
        self.slot: Score | None = None
        self.cut = (0, -np.inf)
        self.below = 0.0
        if rest is not None and self.inner is not None and self.drawn_share > NEGLIGIBLE:
            self._draw(rest)

    def _draw(self, rest: FloatArray) -> None:
        """Cut the score of a drawn slot in two slices."""
        assert self.inner is not None
        self.slot = powered(self.inner, self.drawn_share / self.drawn / self.inner_share)
        self.asked = self.weight / self.drawn_share
        cell, offset = threshold(self.slot, self.asked, self.p, rest)
        below, above, won_below, won_above = slices(self.slot, cell, offset)
        if below <= 0.0 or above <= 0.0 or won_above <= 0.0:
            return
        low, high = won_below / below, won_above / above
        if high - low >= FLAT:
            self.cut, self.below, self.above, self.low, self.high = (
                (cell, offset), below, above, low, high,
            )  # fmt: skip
            self.up, self.down = balance(self.asked, self.p, rest, below, above, low, high)

    def distribution(self) -> FloatArray:
        """Next-token distribution of the selected path, shape (V,)."""
        if self.slot is None:
            found = np.zeros(self.p.size)
        elif self.below > 0.0:
            assert self.rest is not None
            found = self.drawn_share * skewed(
                self.asked, self.p, self.rest, self.low, self.high, self.up, self.down
            )
        else:
            assert self.rest is not None
            found = self.drawn_share * self.rest
        for token, share in self.certain.items():
            found[token] = share
        return found

    def certain_child(self, token: int) -> Standing:
        """What a certain token with more below it knows."""
        share = self.certain[token]
        if share == 0.0 or self.inner is None:
            return Standing(None, 0.0)
        weight = next_weight(self.weight, float(self.p[token]), share)
        return Standing(powered(self.inner, share / self.inner_share), weight)

    def drawn_child(self, token: int) -> Standing:
        """What a drawn token knows."""
        if self.slot is None:
            return Standing(None, 0.0)
        assert self.rest is not None
        p, q = float(self.p[token]), float(self.rest[token])
        if self.below <= 0.0:
            return Standing(self.slot, next_weight(self.weight, p, self.drawn_share * q))
        lower, upper = shares(self.asked * p, q, self.low, self.high, self.up, self.down)
        ratio = lower * self.low + upper * self.high
        if ratio <= NEGLIGIBLE:
            return Standing(None, 0.0)
        bottom = float(np.exp(self.slot.left[-1, 0])) * lower / self.below
        score = sliced(self.slot, *self.cut, bottom, lower / self.below, upper / self.above)
        return Standing(score, next_weight(self.weight, p, self.drawn_share * q * ratio))


@dataclass(frozen=True)
class Tournament(Verification):
    """Select a path of a tree by scores, then run block verification on it.

    For every drafting whose siblings are certain or drawn i.i.d., and whose shape follows the
    draft alone; with K i.i.d. paths it is `martingale`.

    Source: this project.  That selecting a path, whose distribution is known, and running block
    verification on it is lossless: Thomas and Pal, Greedy Multi-Path Block Verification, Lemma
    4.4.  Validity does not depend on how well shares and thresholds are chosen: only on children's
    scores that mix to the parent's, and that is exact.

    Notes
    -----
    O(V) for each node below which tokens were drawn, some 10 passes over the vocabulary, no sort;
    O(S^2 L^2) for the selection among S leaves, some 100 evaluations of each F on each cell.
    """

    name: ClassVar[str] = "tournament"

    def supports(self, drafting: Drafting) -> Capability:
        """Take every tree of independent siblings."""
        if drafting.independent:
            return Capability(True)
        return Capability(
            False,
            f"{self.name} needs siblings that are certain or drawn i.i.d., not with "
            f"{drafting.kind_name} draws: use prefix_tree, mixed_tree, top_tree, or traversal",
        )

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Give every slot its standing downwards, pick, accept upwards; see `Verification`."""
        slots = tree.slots
        if slots.nodes.size == 1:
            return Outcome(0, targets[0])
        field = _Field(tree, targets)
        entrants = list(field.entrants())
        chances = best_score([score for score, _ in entrants])
        ends = [(slot, chance * share) for (_, below), chance in zip(entrants, chances, strict=True)
                for slot, share in below]  # fmt: skip
        picked = ends[chooser.choose(np.array([chance for _, chance in ends]))][0]
        path = [picked]
        while path[0]:
            path.insert(0, int(slots.parents[path[0]]))
        return accept_prefix(
            [int(slots.nodes[slot]) for slot in path],
            [field.standings[slot].weight for slot in path],
            targets,
            lambda at: field.branches[path[at]].distribution(),
            chooser,
        )


@dataclass(eq=False)
class _Field:
    """Who plays in one drafted tree: the standing of every slot, and the branch below it.

    Slots that know the same at one node share their branch.
    """

    tree: DraftTree
    targets: FloatArray
    standings: dict[int, Standing] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)

    def entrants(self) -> Iterator[tuple[Score, list[tuple[int, float]]]]:
        """Yield each score that can win, and the slots that may win by it, with their shares."""
        slots, children = self.tree.slots, self.tree.slots.children
        self.standings[0] = Standing(root_score(), 1.0)
        known: dict[tuple[object, ...], tuple[Branch, dict[int, Standing]]] = {}
        for slot, below in enumerate(children):
            standing = self.standings[slot]
            if standing.score is None:
                for child in below:
                    self.standings[child] = standing
                continue
            if not below:
                yield standing.score, [(slot, 1.0)]
                continue
            node = int(slots.nodes[slot])
            tokens = {child: int(self.tree.tokens[slots.nodes[child]]) for child in below}
            certain = [child for child in below if slots.certain[child]]
            inner = tuple(tokens[child] for child in certain if children[child])
            ending = tuple(tokens[child] for child in certain if not children[child])
            drawn = len(below) - len(certain)
            key = id(standing), node, inner, ending, drawn
            if key not in known:
                rest = self._rest(node, [*inner, *ending]) if drawn else None
                made = Branch(standing, self.targets[node], inner, ending, rest, drawn)
                known[key] = made, {}
            branch, found = known[key]
            self.branches[slot] = branch
            for child in below:
                token = tokens[child]
                if slots.certain[child] and not children[child]:
                    weight = next_weight(branch.weight, float(branch.p[token]), 0.0)
                    if branch.certain[token]:
                        weight = next_weight(
                            branch.weight, float(branch.p[token]), branch.certain[token]
                        )
                    self.standings[child] = Standing(None, weight)
                    continue
                if token not in found:
                    make = branch.certain_child if slots.certain[child] else branch.drawn_child
                    found[token] = make(token)
                self.standings[child] = found[token]
            if branch.end is not None:
                ends = {tokens[child]: child for child in certain if not children[child]}
                total = sum(share for _, share in branch.ending)
                yield branch.end, [(ends[token], share / total) for token, share in branch.ending]

    def _rest(self, node: int, certain: Sequence[int]) -> FloatArray | None:
        """What the drawn children of a slot at a node were drawn from."""
        q = self.tree.distributions[node]
        if not certain:
            return q
        return renormalise_without(q, np.array(certain, dtype=np.int64))
