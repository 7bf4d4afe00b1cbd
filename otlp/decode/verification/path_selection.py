"""Select one of K i.i.d. paths, which skews its distribution, then run block verification on it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting
from otlp.decode.tree import DraftTree
from otlp.decode.verification.block import accept_prefix, next_weight
from otlp.decode.verification.verification import Outcome, Verification
from otlp.distribution import FloatArray
from otlp.errors import Capability

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)


class Skew(Protocol[State_co]):
    """What the selection does to the children of one prefix."""

    def ratio(self, token: int) -> float:
        """Factor r by which the selection multiplies the draft's probability of a child."""

    def draft_distribution(self) -> FloatArray:
        """Next-token distribution q r of the selected path, shape (V,)."""

    def child(self, token: int) -> State_co:
        """State of a child."""


class PathSelection(Verification, Generic[State]):
    """Select a path, run block verification on it with the selected path's distribution as draft.

    Every valid multi-path algorithm is of this form (Thomas and Pal, Greedy Multi-Path Block
    Verification, Lemma 4.4, Theorem 4.6).  A subclass builds the selection from the root down,
    along the drafted paths only: a state for each prefix, and a distribution of the pick given the
    states at the ends of the K paths.
    """

    @abstractmethod
    def root(self, paths: int) -> State:
        """State of the empty prefix, where `paths` paths are drafted."""

    @abstractmethod
    def skew(self, state: State, weight: float, p: FloatArray, q: FloatArray) -> Skew[State]:
        """Skew the children of a prefix.

        Parameters
        ----------
        state : State
            Of the prefix.
        weight : float
            Block verification's weight of the prefix.
        p, q : ndarray, shape (V,)
            Next-token distributions of target and draft.
        """

    @abstractmethod
    def pick(self, states: Sequence[State]) -> FloatArray:
        """Distribution of the selected path given the states at the K ends, shape (K,)."""

    def supports(self, drafting: Drafting) -> Capability:
        """Take K i.i.d. paths of one length."""
        if drafting.is_iid_paths and drafting.paths:
            return Capability(True)
        return Capability(
            False,
            f"{self.name} selects among i.i.d. paths of one length, not in a tree with "
            f"{drafting.kind_name} draws: use iid_paths(K, L), or traversal",
        )

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Weigh all prefixes downwards, pick, accept upwards; see `Verification.verify`."""
        states = {0: self.root(tree.leaves.size)}
        weights = {0: 1.0}
        skews = {}
        for node, children in tree.draws.items():
            p, q = targets[node], tree.distributions[node]
            skew = skews[node] = self.skew(states[node], weights[node], p, q)
            for child in set(children.tolist()):
                token = int(tree.tokens[child])
                skewed = float(q[token]) * skew.ratio(token)
                weights[child] = next_weight(weights[node], float(p[token]), skewed)
                states[child] = skew.child(token)
        leaves = tree.leaves.tolist()
        picked = chooser.choose(self.pick([states[leaf] for leaf in leaves]))
        path = tree.ancestry(leaves[picked])
        return accept_prefix(
            path,
            [weights[node] for node in path],
            targets,
            lambda at: skews[path[at]].draft_distribution(),
            chooser,
        )
