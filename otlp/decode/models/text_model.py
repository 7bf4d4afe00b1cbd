"""Base class of models whose next-token distribution is a function of the text, without a cache."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from otlp.checks import is_a, token_ids, whole_number
from otlp.decode.models.model import Model, Sampling
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, logarithms
from otlp.errors import InvalidInputError

MOST_TOKENS = 10**8
"""Maximum vocabulary size; each row of probabilities has this many numbers."""


class TextModel(Model):
    """Base class of models defined by `distribution`, a function of the text so far.

    Parameters
    ----------
    vocab_size : int
        Vocabulary size V.
    name : str
        Name of the model.
    sampling : Sampling, optional
        Sampling applied to the logarithms of the distribution.

    Attributes
    ----------
    context : ndarray of int64, shape (T,)
        Token ids so far.

    Raises
    ------
    InvalidInputError
        If V is not a whole number from 1 to 100,000,000.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import TextModel
    >>> from otlp.decode.tree import ROOT
    >>> class Repeats(TextModel):
    ...     def distribution(self, text):
    ...         return np.eye(self.vocab_size)[text[-1]]
    >>> model = Repeats(3, "repeats")
    >>> model.start(np.array([0, 2]))
    >>> model.distributions(ROOT, np.array([0])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(self, vocab_size: int, name: str, sampling: Sampling | None = None) -> None:
        self._vocab_size = whole_number(vocab_size, "vocab_size")
        if self._vocab_size > MOST_TOKENS:
            raise InvalidInputError(f"vocab_size must be at most {MOST_TOKENS:,}, got {vocab_size}")
        self._name = name
        self.sampling = Sampling() if sampling is None else sampling
        is_a(self.sampling, Sampling, "sampling")
        self.context = np.empty(0, dtype=np.int64)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self._vocab_size

    @abstractmethod
    def distribution(self, text: IntArray) -> FloatArray:
        """Return the next-token distribution, shape (V,), after token ids of shape (T,), T >= 0."""

    def start(self, context: IntArray) -> None:
        """Start a text."""
        self.context = token_ids(context, "the context", self.vocab_size)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return the logarithms of the distributions after the given nodes, shape (m, V)."""
        return logarithms(self._distributions_after(tree, nodes))

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.context = np.concatenate([self.context, tree.path(node), [token]])

    def _distributions_after(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        texts = (np.append(self.context, tree.path(int(node))) for node in nodes)
        return np.array([self.distribution(text) for text in texts])
