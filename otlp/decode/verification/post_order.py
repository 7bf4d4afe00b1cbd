"""Rules that try leaves first: a rejected subtree returns its mass to its parent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from otlp.decode.choosing import Chooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import Outcome, Verification
from otlp.distribution import FloatArray


class PostOrder(Verification):
    """Base class of rules that try the subtrees below a node one by one, and then the node.

    A node with weight w must be accepted, itself or below, with probability w on average over the
    drafts below it.  A rule defines how a node divides w among its children and itself.
    """

    @abstractmethod
    def attempts(
        self, tree: DraftTree, node: int, p: FloatArray, weight: float
    ) -> Iterator[tuple[int, float, FloatArray]]:
        """Yield the attempts of a node in order: its children, then the node itself.

        Parameters
        ----------
        tree : DraftTree
        node : int
        p : ndarray, shape (V,)
            The target's distribution at the node.
        weight : float
            Required probability w that the node or a prefix below it is accepted.

        Yields
        ------
        node, weight, p : int, float, ndarray of shape (V,)
            Node to try, its acceptance probability given that all earlier attempts were rejected,
            and the distribution of the correction, used only for the node itself.
        """

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Try the root with weight 1; see `Verification.verify`."""
        outcome = self._try(tree, targets, chooser, 0, 1.0)
        return Outcome(0, targets[0]) if outcome is None else outcome

    def _try(
        self, tree: DraftTree, targets: FloatArray, chooser: Chooser, node: int, weight: float
    ) -> Outcome | None:
        """Accept the node or a prefix below it with total probability `weight`."""
        for tried, chance, p in self.attempts(tree, node, targets[node], weight):
            if tried == node:
                return Outcome(node, p) if chooser.accept(chance) else None
            outcome = self._try(tree, targets, chooser, tried, chance) if chance > 0.0 else None
            if outcome is not None:
                return outcome
        return None
