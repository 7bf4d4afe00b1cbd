"""Interface of the verification algorithms.

Each algorithm is a frozen dataclass in a file of this folder.  A base class defined here declares
the supported draftings; the algorithm defines `verify`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability, supported_if
from otlp.checks import own_float_errors
from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, iid_paths
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.distribution import FloatArray
from otlp.numerics.exponentials import Seed


@dataclass(frozen=True, eq=False)
class Outcome:
    """Accepted prefix and the distribution of the correction token after the prefix.

    Attributes
    ----------
    node : int
        Last accepted node: the tokens on its path from the root are accepted.
    correction : ndarray, shape (V,)
        Distribution of the next token; sums to one.
    fallbacks : int
        Number of visited nodes where top-down verification used the fallback solver.

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
    the target follow the target's distribution.  The algorithm sees only the distributions at the
    nodes of the draft tree, from one call of each model.

    Examples
    --------
    >>> import otlp
    >>> from otlp import decode
    >>> class AcceptNothing(decode.Verification):     # samples from the target
    ...     name = "accept-nothing"
    ...     def supports(self, drafting):
    ...         return otlp.Capability(True)
    ...     def verify(self, tree, targets, chooser):
    ...         return decode.Outcome(0, targets[0])
    >>> bool(AcceptNothing().supports(decode.iid_paths(2, 3)))
    True
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Let `verify` ignore how the caller treats floating-point errors."""
        super().__init_subclass__()
        if "verify" in vars(cls):
            cls.verify = own_float_errors(cls.verify)  # type: ignore[method-assign]

    def drafting(self, paths: int, length: int) -> Drafting:
        """Return the algorithm's drafting for K and L; by default K i.i.d. paths of length L."""
        return iid_paths(paths, length)

    def models(self, draft: Model, target: Model, seed: Seed) -> tuple[Model, Model]:
        """Return draft and target for a seed; by default both are unchanged."""
        return draft, target

    @abstractmethod
    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the algorithm supports a drafting; if not, with the reason."""

    @abstractmethod
    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Accept a drafted prefix.

        Parameters
        ----------
        tree : DraftTree
            Draft tree.
        targets : ndarray, shape (N, V)
            The target's next-token distribution p at each node, including leaves; for a cascade,
            the distribution T(q, p).
        chooser : Chooser
            Source of the random decisions.

        Returns
        -------
        Outcome
        """


class OfTrees(Verification):
    """Base class of algorithms that support every tree and every draft scheme."""

    def supports(self, drafting: Drafting) -> Capability:
        """Return that every tree is supported."""
        return Capability(True)


class OfPaths(Verification):
    """Base class of algorithms that select among K i.i.d. paths of equal length."""

    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the drafting is K i.i.d. paths of equal length."""
        return supported_if(
            drafting.is_iid_paths and drafting.paths > 0,
            f"{self.name} selects among i.i.d. paths of equal length, not in a tree with "
            f"{drafting.kind_name} draws: use iid_paths(K, L), or traversal",
        )


class OfOnePath(Verification):
    """Base class of algorithms that verify one path."""

    def supports(self, drafting: Drafting) -> Capability:
        """Return whether the drafting is one i.i.d. path."""
        return supported_if(
            drafting.is_iid_paths and drafting.paths == 1,
            f"{self.name} verifies one i.i.d. path, not {drafting.paths or 'a tree'} with "
            f"{drafting.kind_name} draws: use iid_paths(1, L), or an algorithm such as tournament",
        )


def follow(
    tree: DraftTree,
    targets: FloatArray,
    chooser: Chooser,
    next_token: Callable[[int], FloatArray],
) -> Outcome:
    """Draw tokens down the tree from the root until a token is drawn that was not drafted.

    Parameters
    ----------
    tree, targets, chooser
        As in `Verification.verify`.
    next_token : callable
        Function from an inner node to the distribution of the next token, shape (V,).
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
