"""Rules that try the leaves first: a subtree that is rejected gives back to its parent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from otlp.checks import own_float_errors
from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification
from otlp.distribution import FloatArray


class PostOrder(Verification):
    """Base of the rules that try what is below a node, child after child, and then the node.

    A node with weight w must be accepted, itself or below, with probability w on average over what
    is drafted below it.  A rule says how a node shares w among its children and itself.
    """

    @abstractmethod
    def attempts(
        self, tree: DraftTree, node: int, p: FloatArray, weight: float
    ) -> Iterator[tuple[int, float, FloatArray]]:
        """Yield what a node tries, in order: its children, then itself.

        Parameters
        ----------
        tree : DraftTree
        node : int
        p : ndarray, shape (V,)
            The target's distribution at the node.
        weight : float
            Probability w that the node, or a prefix below it, must be accepted with.

        Yields
        ------
        node, weight, p : int, float, ndarray of shape (V,)
            What is tried, the probability to accept it with given that all before was rejected,
            and the distribution of the correction, which matters once the node tries itself.
        """

    @own_float_errors
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Try the root, which has weight 1; see `Verification.verify`."""
        outcome = self._try(tree, targets, chooser, 0, 1.0)
        return Outcome(0, targets[0]) if outcome is None else outcome

    def _try(
        self, tree: DraftTree, targets: FloatArray, chooser: Chooser, node: int, weight: float
    ) -> Outcome | None:
        """Accept the node or a prefix below it, with probability `weight` in all."""
        for tried, chance, p in self.attempts(tree, node, targets[node], weight):
            if tried == node:
                return Outcome(node, p) if chooser.accept(chance) else None
            outcome = self._try(tree, targets, chooser, tried, chance) if chance > 0.0 else None
            if outcome is not None:
                return outcome
        return None
