"""Tournament verification: each leaf draws a score, and the best path is block-verified.

Every leaf of the tree has a score, and block verification runs on the path of the largest score.
The state of a slot is a function of its own path: the distribution function F of the largest score
below the slot, and the distribution of this score given that it wins, over one coordinate.

- Independent siblings have F^h, where h is the share of the wins of each sibling: their maximum has
  F, and each wins with probability h whatever the score.  The share of a certain token is its
  target mass; drawn tokens divide the rest equally.
- A certain token without children needs no score: it wins where the other scores are low.
- The scores of the tokens of a drawn slot must mix to the F of the slot.  The two-slice rule cuts F
  at one point and assigns token x shares of both slices, so that its win probability is as close as
  possible to its target mass.

On K i.i.d. paths this is `two-slice`, and block verification for K = 1.  On certain tokens the rule
samples from the target and accepts the token if it was drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from otlp.capability import Capability, supported_if
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import accept_prefix, next_weight
from otlp.decode.verification.verification import OfPaths, Outcome, Verification
from otlp.distribution import FloatArray, renormalise_without
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
    """State of a slot.

    Attributes
    ----------
    score : Score or None
        Distribution of the largest score below the slot; None if the slot never wins.
    weight : float
        Weight of the slot's path in block verification.
    """

    score: Score | None
    weight: float


ELIMINATED = NodeState(None, 0.0)
"""State of a slot that never wins."""


class Draws:
    """Win shares of the tokens of i.i.d. drawn slots with equal states at one node.

    Parameters
    ----------
    score : Score
        Score of each slot.
    share : float
        Probability that one of the slots wins.
    weight, p : float, ndarray of shape (V,)
        Weight w and target distribution p; token x should win with its target mass w p_x.
    q : ndarray, shape (V,)
        Distribution of the draws.
    """

    def __init__(
        self, score: Score, share: float, weight: float, p: FloatArray, q: FloatArray
    ) -> None:
        self.score, self.share, self.weight, self.p, self.q = score, share, weight, p, q
        self.unit = weight / share
        self.split = split(score, self.unit, p, q)

    @property
    def flat(self) -> bool:
        """Whether all tokens inherit the state of the slot."""
        return self.split.low == self.split.high

    def excess(self) -> float:
        """Return the fraction of the wins beyond the target masses of the tokens."""
        return min(1.0, clipped_from_below(self.unit, self.p, self.q, self.split.low))

    def masses(self) -> FloatArray:
        """Return the win probability of each token, shape (V,)."""
        if self.flat:
            return self.q if self.share == 1.0 else self.share * self.q
        _, _, _, _, low, high, up, down = self.split
        low, high = self.share * low, self.share * high
        return skewed(self.weight, self.p, self.q, low, high, up, down)

    def child(self, token: int) -> NodeState:
        """Return the state of a slot with this token."""
        wanted, q = self.unit * float(self.p[token]), float(self.q[token])
        score, weight, top = child_score(self.score, self.split, wanted, q)
        return NodeState(score, weight) if top > -np.inf else ELIMINATED


class Branch:
    """Children of one slot: their shares of its wins, and their states.

    Parameters
    ----------
    state : NodeState
        State of the slot, with a score.
    p : ndarray, shape (V,)
        The target's distribution at the slot.
    certain, ending : sequence of int
        Certain tokens with children, and certain tokens that end a path.
    rest : ndarray, shape (V,), or None
        Distribution of the drawn tokens, without the certain tokens; None if none is drawn.
    drawn, drawn_ending : int
        Number of drawn tokens that may have children, and number of drawn tokens that end a path.
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
        shares = {token: self.weight * float(p[token]) for token in (*certain, *ending)}
        free = 0.0
        if rest is not None:
            # Rounding of `free` is harmless: all shares are normalised below.
            free = max(1.0 - sum(shares.values()), 0.0)
        elif not any(shares.values()):
            shares = dict.fromkeys(shares, 1.0)
        least = NEGLIGIBLE * (sum(shares.values()) + free)
        shares = {token: share if share >= least else 0.0 for token, share in shares.items()}
        free = free if free >= least else 0.0
        total = sum(shares.values()) + free
        self.certain = {token: share / total for token, share in shares.items()}
        inner, ends = (sum(self.certain[token] for token in part) for part in (certain, ending))
        free /= total
        kept = 1.0 if drawn else 0.0
        if rest is not None and drawn and drawn_ending and free > NEGLIGIBLE:
            # Tokens that end a path receive the wins that exceed the target masses of the others.
            top = _cut(score, ends, inner + free)[1]
            assert top is not None
            kept -= Draws(
                powered(top, free / drawn / (inner + free)), free, self.weight, p, rest
            ).excess()
        high, low = free * kept, free * (1.0 - kept)
        if min(high, low) < NEGLIGIBLE:
            high, low = (free, 0.0) if high > low else (0.0, free)
        below, above = _cut(score, ends + low, inner + high)
        self.end, middle = _cut(below, ends, low)
        self.above, self.above_share = above, inner + high
        self.draws: Draws | None = None
        self.ending_draws: Draws | None = None
        if rest is not None and above is not None and high > NEGLIGIBLE:
            slot = powered(above, high / drawn / (inner + high))
            self.draws = Draws(slot, high, self.weight, p, rest)
        if rest is not None and middle is not None and low > NEGLIGIBLE:
            slot = powered(middle, 1.0 / drawn_ending)
            if self.draws is None:
                self.ending_draws = Draws(slot, low, self.weight, p, rest)
            else:
                missing = np.maximum(self.weight * p - self.draws.masses(), 0.0)
                self.ending_draws = Draws(slot, low, 1.0, missing, rest)

    def distribution(self) -> FloatArray:
        """Return the next-token distribution of the selected path, shape (V,)."""
        masses = [draws.masses() for draws in (self.draws, self.ending_draws) if draws]
        if not self.certain and len(masses) == 1:
            return masses[0]
        found = np.sum(masses, axis=0) if masses else np.zeros(self.p.size)
        for token, share in self.certain.items():
            found[token] = share
        return found

    def child(self, token: int, certain: bool, ending: bool) -> NodeState:
        """Return the state of a child from its token and whether it is certain or ends a path."""
        if not certain:
            draws = self.ending_draws if ending else self.draws
            return ELIMINATED if draws is None else draws.child(token)
        share = self.certain[token]
        score = self.end if ending else self.above
        if share == 0.0 or score is None:
            return ELIMINATED
        weight = next_weight(self.weight, float(self.p[token]), share)
        # All certain tokens that end a path share one score.
        return NodeState(score if ending else powered(score, share / self.above_share), weight)


def _cut(score: Score | None, lower: float, upper: float) -> tuple[Score | None, Score | None]:
    """Return two scores whose maximum is `score`, with wins in the ratio `lower` to `upper`.

    The first score wins where `score` is low.
    """
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
    never_wins = float(np.exp(score.left[-1, 0]))
    low = sliced(score, cell, offset, never_wins / reached, 1.0 / reached, 0.0)
    return low, sliced(score, cell, offset, reached, 0.0, 1.0)


@dataclass(frozen=True)
class Tournament(Verification):
    """Select a path of a tree by scores, then run block verification on the path.

    Supports every drafting whose siblings are certain or drawn i.i.d. and whose shape depends only
    on the draft.

    Source: this project.  Selecting a path with a known distribution and running block verification
    on the path is lossless by Thomas and Pal, Greedy Multi-Path Block Verification, Lemma 4.4.
    Validity does not depend on the choice of shares and thresholds; it only requires that the
    scores of children mix to the parent's score, which holds exactly.

    Notes
    -----
    O(V) per node with drawn children, about 6 passes over the vocabulary without sorting;
    O(S^2 L^2) for the selection among S leaves, about 10 evaluations of each F on each cell.

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

    name = "tournament"

    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the drafting has independent siblings."""
        return supported_if(
            drafting.independent,
            f"{self.name} needs siblings that are certain or drawn i.i.d., not with "
            f"{drafting.kind_name} draws: use prefix_tree, mixed_tree, top_tree, or traversal",
        )

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Compute states downwards, select a path, accept upwards; see `Verification.verify`."""
        slots = tree.slots
        if slots.nodes.size == 1:
            return Outcome(0, targets[0])
        state = _TreeState(tree, targets)
        candidates = list(state.candidates())
        chances = best_score([score for score, _ in candidates])
        ends, masses = [], []
        for (_, below), chance in zip(candidates, chances.tolist(), strict=True):
            total = sum(share for _, share in below)
            ends += [slot for slot, _ in below]
            masses += [chance * (share / total) for _, share in below]
        selected = ends[chooser.choose(np.array(masses))]
        path = [selected]
        while path[0]:
            path.insert(0, int(slots.parents[path[0]]))
        return accept_prefix(
            [int(slots.nodes[slot]) for slot in path],
            [state.states[slot].weight for slot in path],
            targets,
            lambda at: state.branches[path[at]].distribution(),
            chooser,
        )


@dataclass(frozen=True)
class TwoSlicePaths(OfPaths, Tournament):
    """Tournament on K i.i.d. paths: the two-slice rule at each prefix.

    On small tabular models the block efficiency is within 1% of the optimum over all multi-path
    algorithms (`multipath_optimum`).

    Source: this project; the decomposition is from Thomas and Pal, Greedy Multi-Path Block
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

    name = "two-slice"


@dataclass(eq=False)
class _TreeState:
    """State of every slot of one draft tree, and the branch below each slot.

    Slots with equal states at one node share their branch.
    """

    tree: DraftTree
    targets: FloatArray
    states: dict[int, NodeState] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)

    def candidates(self) -> Iterator[tuple[Score, list[tuple[int, float]]]]:
        """Yield each score that can win, with the slots that win by this score and their shares."""
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
                kind = tokens[child], sure, not children[child] if sure else bool(slots.last[child])
                if kind not in found:
                    found[kind] = branch.child(*kind)
                self.states[child] = found[kind]
            if branch.end is not None:
                yield branch.end, [(child, branch.certain[tokens[child]]) for child in certain
                                   if not children[child]]  # fmt: skip

    def _rest(self, node: int, certain: Sequence[int]) -> FloatArray | None:
        """Return the distribution that the drawn children of a slot at a node were drawn from."""
        q = self.tree.distributions[node]
        if not certain:
            return q
        return renormalise_without(q, np.array(certain, dtype=np.int64))
