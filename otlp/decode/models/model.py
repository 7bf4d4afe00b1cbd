"""Language model interface: next-token distributions at the nodes of a token tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from otlp.checks import is_a, number, real_array, whole_number
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, min_p, softmax, top_k, top_p
from otlp.errors import InvalidInputError


@dataclass(frozen=True)
class Sampling:
    """Sampling settings: the map from logits to the distribution that tokens are sampled from.

    Parameters
    ----------
    temperature : float
        Divisor of the logits; 0 means greedy decoding, a point mass on the arg max.
    top_k : int or None
        Number of most likely tokens to keep; None keeps all.
    top_p : float
        Then keep the smallest set of most likely tokens with at least this mass; 1 keeps all.
    min_p : float
        Then keep tokens with at least this probability, relative to the most likely token; 0 keeps
        all.

    Raises
    ------
    InvalidInputError
        If a value is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> sampling = decode.Sampling(temperature=0.5, top_k=2)
    >>> sampling.distributions(np.array([[2.0, 1.0, 0.0]])).round(3).tolist()
    [[0.881, 0.119, 0.0]]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        number(self.temperature, "temperature", 0.0)
        if self.top_k is not None:
            whole_number(self.top_k, "top_k, unless it is None,")
        if number(self.top_p, "top_p", 0.0, 1.0) == 0.0:
            raise InvalidInputError("top_p must be in (0, 1], got 0")
        number(self.min_p, "min_p", 0.0, 1.0)

    def at(self, temperature: float | None) -> Sampling:
        """Return the same settings at another temperature; None keeps the temperature."""
        return self if temperature is None else replace(self, temperature=temperature)

    def distributions(self, logits: npt.ArrayLike) -> FloatArray:
        """Convert logits, shape (m, V), to float64 distributions; ties go to the lowest id."""
        rows = real_array(logits, "logits", 2)
        if self.temperature == 0.0:
            found = np.zeros(rows.shape)
            found[np.arange(len(rows)), rows.argmax(axis=1)] = 1.0
            return found
        found = softmax(rows, self.temperature)
        if self.top_k is not None:
            found = np.stack([top_k(row, self.top_k) for row in found])
        if self.top_p < 1.0:
            found = np.stack([top_p(row, self.top_p) for row in found])
        if self.min_p > 0.0:
            found = np.stack([min_p(row, self.min_p) for row in found])
        return found


class Model(ABC):
    """Base class of language models with a current context.

    The context is the text so far.  `start` sets the context; `logits` and `distributions` evaluate
    the nodes of a token tree whose root is the end of the context; `advance` appends one path of
    the tree to the context and drops the rest.  An implementation keeps its key-value cache between
    these calls.  It may assume that within one round each tree contains the previous tree, with the
    same node numbers.

    Attributes
    ----------
    sampling : Sampling
        Settings that `distributions` applies to `logits`.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> class Unigram(decode.Model):     # the same logits everywhere
    ...     name, vocab_size = "unigram", 3
    ...     def start(self, context):
    ...         pass
    ...     def logits(self, tree, nodes):
    ...         return np.tile(np.log([0.5, 0.3, 0.2]), (len(nodes), 1))
    ...     def advance(self, tree, node, token):
    ...         pass
    >>> model = Unigram()
    >>> decode.play_round(
    ...     model, model, decode.iid_paths(1, 2), decode.Block(), np.random.default_rng(0)
    ... ).accepted.size
    2
    """

    sampling: Sampling = Sampling()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the model in messages and tables."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Vocabulary size V."""

    @property
    def context_limit(self) -> int | None:
        """Maximum number of tokens in the text; None if there is no limit."""
        return None

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text; none by default."""
        return ()

    @abstractmethod
    def start(self, context: IntArray) -> None:
        """Start a text with the token ids `context`, shape (T,)."""

    @abstractmethod
    def logits(self, tree: TokenTree, nodes: IntArray) -> npt.NDArray[np.floating]:
        """Return next-token logits after the given nodes, in one call of the model.

        Parameters
        ----------
        tree : TokenTree
            Token tree; node 0 is the end of the context.
        nodes : ndarray of int64, shape (m,)
            Nodes of the tree.

        Returns
        -------
        ndarray, shape (m, V), any floating type
        """

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return next-token distributions after the nodes, float64 of shape (m, V); rows sum to 1.

        Override this method to compute the softmax on a device.
        """
        return self.sampling.distributions(self.logits(tree, nodes))

    @abstractmethod
    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path from the root to `node`, then `token`, to the context.

        Cache entries of the path are kept; entries of all other nodes are rolled back.
        """


def check_pair(draft: Model, target: Model) -> None:
    """Raise InvalidInputError if the vocabulary sizes of draft and target differ.

    Raises
    ------
    InvalidInputError
        If the sizes differ (the message names both), or an argument is not a model.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> small, _ = decode.random_pair(3, 2, np.random.default_rng(0))
    >>> large, _ = decode.random_pair(4, 2, np.random.default_rng(0))
    >>> decode.check_pair(small, large)
    Traceback (most recent call last):
    otlp.errors.InvalidInputError: the draft model draft has 3 tokens and the target ...
    """
    is_a(draft, Model, "the draft model")
    is_a(target, Model, "the target model")
    check_sizes((draft.name, target.name), (draft.vocab_size, target.vocab_size))


def check_sizes(names: tuple[str, str], sizes: tuple[int, int]) -> None:
    """Raise InvalidInputError if the vocabulary sizes of draft and target differ."""
    if sizes[0] != sizes[1]:
        raise InvalidInputError(
            f"the draft model {names[0]} has {sizes[0]} tokens and the target model "
            f"{names[1]} has {sizes[1]}: both must have the same vocabulary"
        )
