"""Base class of the drafting methods."""

from __future__ import annotations

from abc import ABC, abstractmethod

from otlp.decode.choosing import Chooser
from otlp.decode.models.model import Model
from otlp.decode.tree import DraftTree
from otlp.drafts import DraftScheme


class Drafting(ABC):
    """Base class of methods that draft a tree; subclasses are frozen dataclasses.

    A drafting sees only the draft model, so its shape cannot depend on the target.

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
        """Maximum path length L."""

    @property
    @abstractmethod
    def kind_name(self) -> str:
        """Short name of the way siblings are drawn."""

    @property
    @abstractmethod
    def independent(self) -> bool:
        """Whether siblings are certain, or drawn independently from q without the certain ones."""

    @property
    @abstractmethod
    def siblings(self) -> DraftScheme | None:
        """Example of the siblings of this drafting over a small vocabulary; None if there are none.

        An algorithm uses the example to check whether a solver supports the siblings.
        """

    @property
    def paths(self) -> int:
        """Number K of drafted paths if K is fixed, else 0."""
        return 0

    @property
    def is_iid_paths(self) -> bool:
        """Whether the drafting is K i.i.d. paths, all of length L."""
        return False

    @abstractmethod
    def shortened(self, length: int) -> Drafting:
        """Return the drafting with paths cut to this length; 0 drafts nothing."""

    @abstractmethod
    def draft(self, model: Model, chooser: Chooser) -> DraftTree:
        """Draft one tree.

        Parameters
        ----------
        model : Model
            The draft model, at the end of the context.
        chooser : Chooser
            Source of the random decisions.

        Returns
        -------
        DraftTree

        Notes
        -----
        One call of the model per level, with all nodes of that level in one batch.
        """
