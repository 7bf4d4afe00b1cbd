"""What every verification algorithm answers: which drafted prefix to keep, and what comes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from otlp.decode.choosing import Chooser
from otlp.decode.drafting import Drafting, iid_paths
from otlp.decode.tree import DraftTree
from otlp.distribution import FloatArray
from otlp.errors import Capability


@dataclass(frozen=True, eq=False)
class Outcome:
    """The accepted prefix, and the distribution of the correction token that follows it.

    Attributes
    ----------
    node : int
        The tokens on the path from the root to this node of the draft tree are accepted.
    correction : ndarray, shape (V,)
        Distribution of the next token; sums to one.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import Outcome
    >>> Outcome(node=0, correction=np.array([0.25, 0.75])).node     # nothing was accepted
    0
    """

    node: int
    correction: FloatArray


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
    one_path: ClassVar[bool] = False
    """Whether it verifies a single path only."""

    def drafting(self, paths: int, length: int) -> Drafting:
        """What to draft for the algorithm, given K and L: K i.i.d. paths, unless it says other."""
        return iid_paths(paths, length)

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


def iid_paths_only(drafting: Drafting, name: str) -> Capability:
    """Whether K i.i.d. paths of one length are drafted."""
    if drafting.is_iid_paths and drafting.paths:
        return Capability(True)
    return Capability(
        False,
        f"{name} selects among i.i.d. paths of one length, not in a tree with "
        f"{drafting.kind_name} draws: use iid_paths(K, L), or traversal",
    )
