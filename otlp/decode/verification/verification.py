"""What every verification algorithm answers: which drafted prefix to keep, and what comes next.

A rule over trees is a small file beside this one: a frozen dataclass that says which draftings it
takes, by one of the bases here, and how it verifies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, iid_paths
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.distribution import FloatArray
from otlp.errors import Capability
from otlp.numerics.exponentials import Seed


@dataclass(frozen=True, eq=False)
class Outcome:
    """The accepted prefix, and the distribution of the correction token that follows it.

    Attributes
    ----------
    node : int
        The tokens on the path from the root to this node of the draft tree are accepted.
    correction : ndarray, shape (V,)
        Distribution of the next token; sums to one.
    fallbacks : int
        Of top-down: at so many nodes on the way the fallback stood in for the solver.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import Outcome
    >>> Outcome(node=0, correction=np.array([0.25, 0.75])).node     # nothing was accepted
    0
    """

    node: int
    correction: FloatArray
    fallbacks: int = 0


class Verification(ABC):
    """Base class of the verification algorithms; subclasses are frozen dataclasses.

    An algorithm is lossless if the accepted tokens, the correction, and then tokens sampled from
    the target follow the target's distribution.  It sees only what one call of each model gives:
    the distributions at the nodes of the draft tree.

    Examples
    --------
    >>> import otlp
    >>> from otlp import decode
    >>> class AcceptNothing(decode.Verification):     # draws from the target
    ...     name = "accept-nothing"
    ...     def supports(self, drafting):
    ...         return otlp.Capability(True)
    ...     def verify(self, tree, targets, chooser):
    ...         return decode.Outcome(0, targets[0])
    >>> bool(AcceptNothing().supports(decode.iid_paths(2, 3)))
    True
    """

    name: ClassVar[str]

    def drafting(self, paths: int, length: int) -> Drafting:
        """What to draft for the algorithm, given K and L: K i.i.d. paths, unless it says other."""
        return iid_paths(paths, length)

    def models(self, draft: Model, target: Model, seed: Seed) -> tuple[Model, Model]:
        """Draft and target as the algorithm takes them for a seed: as they are, unless it says."""
        return draft, target

    @abstractmethod
    def supports(self, drafting: Drafting) -> Capability:
        """Whether the algorithm takes what this drafting makes, or the reason why not."""

    @abstractmethod
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Accept a drafted prefix.

        Parameters
        ----------
        tree : DraftTree
            What was drafted.
        targets : ndarray, shape (N, V)
            The target's next-token distribution p at each node, leaves included; for a cascade,
            the one that it aims at.
        chooser : Chooser
            Takes the random decisions.

        Returns
        -------
        Outcome
        """


class OfTrees(Verification):
    """Base of the algorithms that take every tree and every kind of draws."""

    def supports(self, drafting: Drafting) -> Capability:
        """Take every tree."""
        return Capability(True)


class OfPaths(Verification):
    """Base of the algorithms that select among K i.i.d. paths of one length."""

    def supports(self, drafting: Drafting) -> Capability:
        """Take K i.i.d. paths of one length."""
        if drafting.is_iid_paths and drafting.paths:
            return Capability(True)
        return Capability(
            False,
            f"{self.name} selects among i.i.d. paths of one length, not in a tree with "
            f"{drafting.kind_name} draws: use iid_paths(K, L), or traversal",
        )


class OfOnePath(Verification):
    """Base of the algorithms that verify one path."""

    def supports(self, drafting: Drafting) -> Capability:
        """Take one path."""
        if drafting.paths == 1 and drafting.is_iid_paths:
            return Capability(True)
        return Capability(
            False,
            f"{self.name} verifies one i.i.d. path, not {drafting.paths or 'those of a tree'} with "
            f"{drafting.kind_name} draws: use iid_paths(1, L), or an algorithm such as tournament",
        )


def follow(
    tree: DraftTree,
    targets: FloatArray,
    chooser: Chooser,
    next_token: Callable[[int], FloatArray],
) -> Outcome:
    """Draw token after token from the root on, until one is drawn that was not drafted.

    Parameters
    ----------
    tree, targets, chooser
        As in `Verification.verify`.
    next_token : callable
        From an inner node to the distribution of the token that follows it, shape (V,).
    """
    node = 0
    while node in tree.draws:
        distribution = next_token(node)
        children = np.unique(tree.draws[node])
        tokens = tree.tokens[children]
        undrafted = distribution.copy()
        undrafted[tokens] = 0.0
        rest = float(undrafted.sum())
        chosen = chooser.choose(np.append(distribution[tokens], rest))
        if chosen == children.size:
            return Outcome(node, undrafted / rest)
        node = int(children[chosen])
    return Outcome(node, targets[node])
