"""Draftings whose depth or branching adapts to the draft's confidence."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from otlp.checks import number, whole_number
from otlp.decode.drafting.growing import Children, ShapeRule, check_slots
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.distribution import FloatArray


@dataclass(frozen=True)
class AdaptiveDepth(ShapeRule[tuple[int, float]]):
    """K i.i.d. paths; each is extended while its worth is at least a threshold.

    The worth of a path is the draft's probability of its tokens, which EAGLE-2 uses as an estimate
    of their acceptance.  The state is the length and the worth of the path.
    """

    paths: int
    most: int
    threshold: float

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return self.most

    def root(self) -> tuple[int, float]:
        """Return the state of the empty path, with worth 1."""
        return 0, 1.0

    def children(self, state: tuple[int, float], q: FloatArray) -> Children:
        """Return K children at the root, and one child at other slots."""
        return Children(drawn=1 if state[0] else self.paths)

    def below(
        self, state: tuple[int, float], q: FloatArray, place: int, token: int
    ) -> tuple[int, float] | None:
        """Return the state of the extended path; None if it ends."""
        length, worth = state[0] + 1, state[1] * float(q[token])
        return (length, worth) if length < self.most and worth >= self.threshold else None

    def ends(self, state: tuple[int, float], q: FloatArray, place: int) -> bool:
        """Return whether the child has the maximum length."""
        return state[0] + 1 == self.most


@dataclass(frozen=True)
class AdaptiveBranching(ShapeRule[tuple[int, int]]):
    """Budget of nodes that each slot splits among children; uncertain drafts get more children.

    A slot has the smallest number k of i.i.d. children that cover at least `coverage` of the
    draft's distribution on average, sum q (1 - (1 - q)^k), within its budget.  The rest of the
    budget is split evenly among the children.  The state is the budget below the slot and the
    number of remaining levels.
    """

    nodes: int
    most: int
    coverage: float

    @property
    def length(self) -> int:
        """Length of the longest path."""
        return min(self.most, self.nodes)

    def root(self) -> tuple[int, int] | None:
        """Return the whole budget; None if it is 0."""
        return (self.nodes, self.most) if self.nodes else None

    def children(self, state: tuple[int, int], q: FloatArray) -> Children:
        """Return the smallest sufficient number of children; O(V log N)."""
        drafted, counts = q[q > 0.0], range(1, state[0])

        def covered(count: int) -> float:
            return float(drafted @ (1.0 - (1.0 - drafted) ** count))

        return Children(drawn=1 + bisect_left(counts, self.coverage, key=covered))

    def below(
        self, state: tuple[int, int], q: FloatArray, place: int, token: int
    ) -> tuple[int, int] | None:
        """Return an even share of the rest; the first children get one node more if needed."""
        count = self.children(state, q).drawn
        share, more = divmod(state[0] - count, count)
        budget, depths = share + (place < more), state[1] - 1
        return (budget, depths) if budget and depths else None

    def ends(self, state: tuple[int, int], q: FloatArray, place: int) -> bool:
        """Return whether the child has no budget or no level left."""
        return self.below(state, q, place, 0) is None


def adaptive_depth(paths: int, length: int, threshold: float) -> RuledDrafting:
    """Draft K i.i.d. paths of at most L tokens, which end below a probability threshold.

    Parameters
    ----------
    paths, length : int
        Number of paths K and maximum path length L.
    threshold : float
        Threshold in [0, 1].  A path ends with the token at which the draft's probability of the
        path falls below the threshold; with 0 all paths have length L.

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
    """Draft a tree of at most N nodes, wide where the draft is uncertain and deep elsewhere.

    Parameters
    ----------
    nodes : int
        Budget N of drafted tokens, including repeated tokens; with 0 nothing is drafted.
    length : int
        Length L of the longest path.
    coverage : float
        Share of the draft's distribution in [0, 1] that the children of a node must cover on
        average.

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
