"""What every drafting answers: how long its paths are, how siblings are drawn, and a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod

from otlp.decode.choosing import Chooser
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.drafts import DraftScheme


class Drafting(ABC):
    """Base class of the ways to draft a tree; subclasses are frozen dataclasses.

    A drafting is given the draft model alone: no shape can depend on the target.

    Examples
    --------
    >>> from otlp import decode
    >>> drafting = decode.iid_paths(2, 3)
    >>> isinstance(drafting, decode.Drafting), drafting.length, drafting.kind_name
    (True, 3, 'iid')
    """

    @property
    @abstractmethod
    def length(self) -> int:
        """Length L of the longest path that can be drafted."""

    @property
    @abstractmethod
    def kind_name(self) -> str:
        """How siblings are drawn, in a word."""

    @property
    @abstractmethod
    def independent(self) -> bool:
        """Whether siblings are certain or drawn independently, from the draft without those."""

    @property
    @abstractmethod
    def siblings(self) -> DraftScheme | None:
        """Siblings as this drafting draws them, over few tokens; None if there are none.

        What an algorithm asks a solver about that would have to take them.
        """

    @property
    def paths(self) -> int:
        """Number K of drafted paths if that is fixed, else 0."""
        return 0

    @property
    def is_iid_paths(self) -> bool:
        """Whether it drafts K i.i.d. paths, all of length L."""
        return False

    @abstractmethod
    def shortened(self, length: int) -> Drafting:
        """Draft the same, but no path longer than this; nothing for 0."""

    @abstractmethod
    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Draft one tree.

        Parameters
        ----------
        model : Model
            The draft model, at the end of the context.
        chooser : Chooser
            Takes the random decisions.

        Returns
        -------
        DraftTree

        Notes
        -----
        One call of the model a level, with all nodes of that level in one batch.
        """
