"""Tournament verification: each leaf draws a score, the best path is block-verified.

Every leaf of the tree gets a score, and block verification runs along the path of the largest.
The state of a slot is a function of its own path: the distribution function F of the largest score
below it, and the law of that score given that it wins, over one coordinate.

- Independent siblings get F^h, h their shares of the wins: the maximum has F, and each wins with
  probability h whatever the score.  A certain token's share is its target mass; the drawn ones
  share the rest equally.
- A certain token with nothing below it needs no score: it wins where the others score low.
- The tokens of a drawn slot must mix to its F.  The two-slice rule cuts F at one place and gives
  token x shares of both slices, so that its mass of wins is as near as can be to its target mass.

On K i.i.d. paths that is `two-slice`, and block verification for K = 1; on certain tokens it is to
sample from the target, and see whether that was drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from otlp.checks import own_float_errors
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import accept_prefix, next_weight
from otlp.decode.verification.verification import OfPaths, Outcome, Verification
from otlp.distribution import FloatArray, renormalise_without
from otlp.errors import Capability
from otlp.numerics.best_score import best_score
from otlp.numerics.score_chains import (
    NEGLIGIBLE,
    Score,
    powered,
    root_score,
    sliced,
    slices,
    win_quantile,
)
from otlp.numerics.score_threshold import child_score, split
from otlp.numerics.two_slice import clipped_from_below, skewed


@dataclass(frozen=True, eq=False)
class NodeState:
    """The state of a slot.

    Attributes
    ----------
    score : Score or None
        Of the largest score below the slot; None if it never wins.
    weight : float
        Block verification's weight of the slot's path.
    """

    score: Score | None
    weight: float


ELIMINATED = NodeState(None, 0.0)
"""The state of a slot that never wins."""


class Draws:
    """Slots of one node, of equal states, that are filled by i.i.d. draws: their tokens' shares.

    Parameters
    ----------
    score : Score
        Of each of the slots.
    share : float
        Probability that one of them wins.
    weight, p : float, ndarray of shape (V,)
        The target mass of token x, that with which it should win, is w p_x.
    q : ndarray, shape (V,)
        What they are drawn from.
    """

    def __init__(
        self, score: Score, share: float, weight: float, p: FloatArray, q: FloatArray
    ) -> None:
        self.score, self.share, self.weight, self.p, self.q = score, share, weight, p, q
        self.unit = weight / share
        self.split = split(score, self.unit, p, q)

    @property
    def flat(self) -> bool:
        """Whether tokens are not told apart: all inherit the state of the slot."""
        return self.split.low == self.split.high

    def wasted(self) -> float:
        """Part of the wins that goes to tokens beyond their target masses."""
        return min(1.0, clipped_from_below(self.unit, self.p, self.q, self.split.low))

    def masses(self) -> FloatArray:
        """Probability that each token wins, shape (V,)."""
        if self.flat:
            return self.q if self.share == 1.0 else self.share * self.q
        _, _, _, _, low, high, up, down = self.split
        low, high = self.share * low, self.share * high
        return skewed(self.weight, self.p, self.q, low, high, up, down)

    def child(self, token: int) -> NodeState:
        """The state of a slot with this token."""
        wanted, q = self.unit * float(self.p[token]), float(self.q[token])
        score, weight, top = child_score(self.score, self.split, wanted, q)
        return NodeState(score, weight) if top > -np.inf else ELIMINATED


class Branch:
    """The children of one slot: their shares of its wins, and their states.

    Parameters
    ----------
    state : NodeState
        Of the slot, with a score.
    p : ndarray, shape (V,)
        The target's distribution there.
    certain, ending : sequence of int
        Certain tokens below which more is drafted, and those that only end a path.
    rest : ndarray, shape (V,), or None
        What the others are drawn from, without the certain tokens; None if none are.
    drawn, drawn_ending : int
        How many are drawn that more is drafted below, and how many that only end a path.
    """

    def __init__(
        self,
        state: NodeState,
        p: FloatArray,
        certain: Sequence[int],
        ending: Sequence[int],
        rest: FloatArray | None,
        drawn: int,
        drawn_ending: int,
    ) -> None:
        assert state.score is not None
        score, self.weight, self.p = state.score, state.weight, p
        asked = {token: self.weight * float(p[token]) for token in (*certain, *ending)}
        free = 0.0
        if rest is not None:
            # exact only to rounding, as shares may be
            free = max(1.0 - sum(asked.values()), 0.0)
        elif not any(asked.values()):
            asked = dict.fromkeys(asked, 1.0)
        least = NEGLIGIBLE * (sum(asked.values()) + free)
        asked = {token: share if share >= least else 0.0 for token, share in asked.items()}
        free = free if free >= least else 0.0
        total = sum(asked.values()) + free
        self.certain = {token: share / total for token, share in asked.items()}
        on, ends = (sum(self.certain[token] for token in some) for some in (certain, ending))
        free /= total
        kept = 1.0 if drawn else 0.0
        if rest is not None and drawn and drawn_ending and free > NEGLIGIBLE:
            # what only ends a path gets what the others would waste
            top = _parted(score, ends, on + free)[1]
            assert top is not None
            kept -= Draws(
                powered(top, free / drawn / (on + free)), free, self.weight, p, rest
            ).wasted()
        high, low = free * kept, free * (1.0 - kept)
        if min(high, low) < NEGLIGIBLE:
            high, low = (free, 0.0) if high > low else (0.0, free)
        below, above = _parted(score, ends + low, on + high)
        self.end, middle = _parted(below, ends, low)
        self.above, self.above_share = above, on + high
        self.draws: Draws | None = None
        self.ending_draws: Draws | None = None
        if rest is not None and above is not None and high > NEGLIGIBLE:
            slot = powered(above, high / drawn / (on + high))
            self.draws = Draws(slot, high, self.weight, p, rest)
        if rest is not None and middle is not None and low > NEGLIGIBLE:
            slot = powered(middle, 1.0 / drawn_ending)
            if self.draws is None:
                self.ending_draws = Draws(slot, low, self.weight, p, rest)
            else:
                missing = np.maximum(self.weight * p - self.draws.masses(), 0.0)
                self.ending_draws = Draws(slot, low, 1.0, missing, rest)

    def distribution(self) -> FloatArray:
        """Next-token distribution of the selected path, shape (V,)."""
        masses = [draws.masses() for draws in (self.draws, self.ending_draws) if draws]
        if not self.certain and len(masses) == 1:
            return masses[0]
        found = np.sum(masses, axis=0) if masses else np.zeros(self.p.size)
        for token, share in self.certain.items():
            found[token] = share
        return found

    def child(self, token: int, certain: bool, ending: bool) -> NodeState:
        """The state of a child, given its token, whether that is certain, and whether it ends."""
        if not certain:
            draws = self.ending_draws if ending else self.draws
            return ELIMINATED if draws is None else draws.child(token)
        share = self.certain[token]
        score = self.end if ending else self.above
        if share == 0.0 or score is None:
            return ELIMINATED
        weight = next_weight(self.weight, float(self.p[token]), share)
        # the score of a token that ends a path is that of all of its kind
        return NodeState(score if ending else powered(score, share / self.above_share), weight)


def bottom(score: Score) -> float:
    """Probability that the score is one that never wins."""
    return float(np.exp(score.left[-1, 0]))


def _parted(score: Score | None, lower: float, upper: float) -> tuple[Score | None, Score | None]:
    """Two scores whose maximum is `score`; the first wins where it is low, in this ratio."""
    if score is None or lower + upper <= NEGLIGIBLE:
        return None, None
    if upper <= NEGLIGIBLE * (lower + upper):
        return score, None
    if lower <= NEGLIGIBLE * (lower + upper):
        return None, score
    cell, offset = win_quantile(score, lower / (lower + upper))
    reached, _, _, won_above = slices(score, cell, offset)
    if won_above <= 0.0:
        return score, None
    if reached <= 0.0:
        return None, score
    low = sliced(score, cell, offset, bottom(score) / reached, 1.0 / reached, 0.0)
    return low, sliced(score, cell, offset, reached, 0.0, 1.0)


@dataclass(frozen=True)
class Tournament(Verification):
    """Select a path of a tree by scores, then run block verification on it.

    For every drafting whose siblings are certain or drawn i.i.d., and whose shape follows the
    draft alone.

    Source: this project.  That selecting a path, whose distribution is known, and running block
    verification on it is lossless: Thomas and Pal, Greedy Multi-Path Block Verification, Lemma
    4.4.  Validity does not depend on how well shares and thresholds are chosen: only on children's
    scores that mix to the parent's, and that is exact.

    Notes
    -----
    O(V) for each node below which tokens were drawn, some 6 passes over the vocabulary, no sort;
    O(S^2 L^2) for the selection among S leaves, some 10 evaluations of each F on each cell.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.prefix_tree([2, 1]), decode.Tournament())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.6887
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

    @own_float_errors
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Give every slot its state downwards, pick, accept upwards; see `Verification`."""
        slots = tree.slots
        if slots.nodes.size == 1:
            return Outcome(0, targets[0])
        known = _TreeState(tree, targets)
        candidates = list(known.candidates())
        chances = best_score([score for score, _ in candidates])
        ends, masses = [], []
        for (_, below), chance in zip(candidates, chances.tolist(), strict=True):
            whole = sum(share for _, share in below)
            ends += [slot for slot, _ in below]
            masses += [chance * (share / whole) for _, share in below]
        picked = ends[chooser.choose(np.array(masses))]
        path = [picked]
        while path[0]:
            path.insert(0, int(slots.parents[path[0]]))
        return accept_prefix(
            [int(slots.nodes[slot]) for slot in path],
            [known.states[slot].weight for slot in path],
            targets,
            lambda at: known.branches[path[at]].distribution(),
            chooser,
        )


@dataclass(frozen=True)
class TwoSlicePaths(OfPaths, Tournament):
    """The tournament of K i.i.d. paths: the two-slice rule at each prefix.

    On small tabular models its block efficiency is within 1% of the optimum over all multi-path
    algorithms (`multipath_optimum`).

    Source: this project; the decomposition is that of Thomas and Pal, Greedy Multi-Path Block
    Verification, Lemma 4.4 and Theorem 4.6.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp.decode.laws.round_laws import round_law
    >>> draft, target = decode.random_pair(3, 3, np.random.default_rng(0))
    >>> law = round_law(draft, target, decode.iid_paths(2, 2), decode.TwoSlicePaths())
    >>> round(float(law.block_efficiency), 4)          # exact, by enumeration
    2.6887
    """

    name: ClassVar[str] = "two-slice"


@dataclass(eq=False)
class _TreeState:
    """What one drafted tree makes of its slots: the state of every one, and the branch below it.

    Slots of equal states at one node share their branch.
    """

    tree: DraftTree
    targets: FloatArray
    states: dict[int, NodeState] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)

    def candidates(self) -> Iterator[tuple[Score, list[tuple[int, float]]]]:
        """Yield each score that can win, and the slots that may win by it, with their shares."""
        slots, children = self.tree.slots, self.tree.slots.children
        self.states[0] = NodeState(root_score(), 1.0)
        known: dict[tuple[object, ...], tuple[Branch, dict[object, NodeState]]] = {}
        for slot, below in enumerate(children):
            state = self.states[slot]
            if state.score is None:
                for child in below:
                    self.states[child] = state
                continue
            if not below:
                if not slots.certain[slot]:
                    yield state.score, [(slot, 1.0)]
                continue
            node = int(slots.nodes[slot])
            tokens = {child: int(self.tree.tokens[slots.nodes[child]]) for child in below}
            certain = [child for child in below if slots.certain[child]]
            inner = tuple(tokens[child] for child in certain if children[child])
            ending = tuple(tokens[child] for child in certain if not children[child])
            drawn = slots.last[[child for child in below if not slots.certain[child]]]
            counts = int(np.sum(~drawn)), int(np.sum(drawn))
            key = id(state), node, inner, ending, *counts
            if key not in known:
                rest = self._rest(node, [*inner, *ending]) if any(counts) else None
                known[key] = Branch(state, self.targets[node], inner, ending, rest, *counts), {}
            branch, found = known[key]
            self.branches[slot] = branch
            for child in below:
                sure = bool(slots.certain[child])
                of = tokens[child], sure, not children[child] if sure else bool(slots.last[child])
                if of not in found:
                    found[of] = branch.child(*of)
                self.states[child] = found[of]
            if branch.end is not None:
                yield branch.end, [(child, branch.certain[tokens[child]]) for child in certain
                                   if not children[child]]  # fmt: skip

    def _rest(self, node: int, certain: Sequence[int]) -> FloatArray | None:
        """What the drawn children of a slot at a node were drawn from."""
        q = self.tree.distributions[node]
        if not certain:
            return q
        return renormalise_without(q, np.array(certain, dtype=np.int64))
