"""Depth and branching that follow the draft's confidence."""

from __future__ import annotations

from dataclasses import dataclass

from otlp.checks import number, whole_number
from otlp.decode.drafting.growing import Children, ShapeRule, check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class AdaptiveDepth(ShapeRule[tuple[int, float]]):
    """K i.i.d. paths; each goes on while it is worth a threshold.

    What a path is worth is the probability that the draft gives its tokens, which is what EAGLE-2
    takes for the chance that they are accepted.  The state is the path's length and its worth.
    """

    paths: int
    most: int
    threshold: float

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return self.most

    def root(self) -> tuple[int, float]:
        """No token, worth 1."""
        return 0, 1.0

    def children(self, state: tuple[int, float], q: FloatArray) -> Children:
        """K at the root, then one each."""
        return Children(drawn=1 if state[0] else self.paths)

    def below(
        self, state: tuple[int, float], q: FloatArray, place: int, token: int
    ) -> tuple[int, float] | None:
        """One longer, and worth less."""
        length, worth = state[0] + 1, state[1] * float(q[token])
        return (length, worth) if length < self.most and worth >= self.threshold else None

    def ends(self, state: tuple[int, float], q: FloatArray, place: int) -> bool:
        """At the greatest length."""
        return state[0] + 1 == self.most


@dataclass(frozen=True)
class AdaptiveBranching(ShapeRule[tuple[int, int]]):
    """A budget of nodes that each slot splits among as many children as the draft is unsure.

    A slot has the fewest i.i.d. children that hold `coverage` of the draft's distribution on
    average, sum q (1 - (1 - q)^k), as far as its budget goes; what is left is split evenly among
    them.  The state is the budget below the slot, and the depths left.
    """

    nodes: int
    most: int
    coverage: float

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return min(self.most, self.nodes)

    def root(self) -> tuple[int, int] | None:
        """The whole budget; with none nothing is drafted."""
        return (self.nodes, self.most) if self.nodes else None

    def children(self, state: tuple[int, int], q: FloatArray) -> Children:
        """The fewest that cover enough: O(V log N)."""
        few, many = 1, state[0]
        drafted = q[q > 0.0]
        while few < many:
            middle = (few + many) // 2
            if float(drafted @ (1.0 - (1.0 - drafted) ** middle)) >= self.coverage:
                many = middle
            else:
                few = middle + 1
        return Children(drawn=few)

    def below(
        self, state: tuple[int, int], q: FloatArray, place: int, token: int
    ) -> tuple[int, int] | None:
        """An even part of the rest, the first children one more where it does not divide."""
        count = self.children(state, q).drawn
        share, more = divmod(state[0] - count, count)
        budget, depths = share + (place < more), state[1] - 1
        return (budget, depths) if budget and depths else None

    def ends(self, state: tuple[int, int], q: FloatArray, place: int) -> bool:
        """With no budget, or no depth left."""
        return self.below(state, q, place, 0) is None


def adaptive_depth(paths: int, length: int, threshold: float) -> RuledDrafting:
    """Draft K i.i.d. paths of at most L tokens, each only while it is worth a threshold.

    Parameters
    ----------
    paths, length : int
        K and L.
    threshold : float
        A path ends with the token that makes the draft's probability of it less than this, in
        [0, 1]; 0 drafts whole paths.

    Raises
    ------
    InvalidInputError
        If K or L is less than 1, or the threshold is not in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp_lab.design.adaptive import adaptive_depth
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = adaptive_depth(2, 3, threshold=0.2)
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> int(tree.depths.max()) <= 3
    True
    """
    whole_number(paths, "the number of paths K")
    whole_number(length, "the path length L")
    check_slots(paths * length)
    return RuledDrafting(
        AdaptiveDepth(int(paths), int(length), number(threshold, "threshold", 0.0, 1.0))
    )


def adaptive_branching(nodes: int, length: int, coverage: float = 0.5) -> RuledDrafting:
    """Draft a tree of at most N nodes that is wide where the draft is unsure, and deep elsewhere.

    Parameters
    ----------
    nodes : int
        The budget N of drafted tokens, repeated ones included; with 0 nothing is drafted.
    length : int
        Length L of the longest path.
    coverage : float
        How much of the draft's distribution the children of a node must hold on average, in
        [0, 1].

    Raises
    ------
    InvalidInputError
        If N is negative, L less than 1, or the coverage not in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> from otlp_lab.design.adaptive import adaptive_branching
    >>> draft, _ = decode.random_pair(4, 4, np.random.default_rng(0))
    >>> draft.start(())
    >>> drafting = adaptive_branching(6, 3)
    >>> tree = drafting.draft(draft, decode.RandomChooser(np.random.default_rng(1)))
    >>> tree.tokens.size <= 7
    True
    """
    check_slots(whole_number(nodes, "the number of nodes N", 0))
    whole_number(length, "the path length L")
    return RuledDrafting(
        AdaptiveBranching(int(nodes), int(length), number(coverage, "coverage", 0.0, 1.0))
    )
