"""What a language model must answer: next-token distributions at the nodes of a token tree."""

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
    """From logits to the distribution that tokens are sampled from.

    Parameters
    ----------
    temperature : float
        Divides the logits; 0 stands for greedy decoding, a point mass on the arg max.
    top_k : int or None
        Keep this many most likely tokens; None keeps all.
    top_p : float
        Then keep the fewest most likely tokens whose mass reaches this; 1 keeps all.
    min_p : float
        Then keep the tokens that are at least so likely, in units of the likeliest; 0 keeps all.

    Raises
    ------
    InvalidInputError
        If a value is out of its range.

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
            raise InvalidInputError("top_p is 0: it must be in (0, 1]")
        number(self.min_p, "min_p", 0.0, 1.0)

    def at(self, temperature: float | None) -> Sampling:
        """The same at another temperature; None keeps it, as for a draft that goes its own way."""
        return self if temperature is None else replace(self, temperature=temperature)

    def distributions(self, logits: npt.ArrayLike) -> FloatArray:
        """From rows of logits, shape (m, V), to float64 of that shape; ties go to the lowest id."""
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
    """A language model that is in the middle of a text.

    The text so far is the context.  `start` sets it; `logits` and `distributions` look beyond it,
    at the nodes of a token tree whose root is the context's end; `advance` commits to one path of
    that tree and forgets the rest.  An implementation keeps its key-value cache between these
    calls, and may assume that within one round each tree contains the one before, node by node.

    Attributes
    ----------
    sampling : Sampling
        How `distributions` come from `logits`.

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
        """What to call the model in messages and tables."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Vocabulary size V."""

    @property
    def context_limit(self) -> int | None:
        """How many tokens the text may grow to; None if there is no limit."""
        return None

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text; none by default."""
        return ()

    @abstractmethod
    def start(self, context: IntArray) -> None:
        """Begin a text: `context` holds its token ids, shape (T,)."""

    @abstractmethod
    def logits(self, tree: TokenTree, nodes: IntArray) -> npt.NDArray[np.floating]:
        """Next-token logits after the given nodes, in one call of the model.

        Parameters
        ----------
        tree : TokenTree
            Node 0 is the end of the context.
        nodes : ndarray of int64, shape (m,)
            Nodes of the tree.

        Returns
        -------
        ndarray, shape (m, V), any floating type
        """

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Next-token distributions after the given nodes, shape (m, V), float64, rows sum to one.

        Override it where the softmax is better computed on the device.
        """
        return self.sampling.distributions(self.logits(tree, nodes))

    @abstractmethod
    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path from the root to `node`, then `token`, to the context.

        The cache of that path is kept, that of all other nodes is rolled back.
        """


def check_pair(draft: Model, target: Model) -> None:
    """Refuse a draft and a target model over different vocabularies.

    Raises
    ------
    InvalidInputError
        Naming both sizes.

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
    """Refuse draft and target by what is known of them: different vocabulary sizes."""
    if sizes[0] != sizes[1]:
        raise InvalidInputError(
            f"the draft model {names[0]} has {sizes[0]} tokens and the target model "
            f"{names[1]} has {sizes[1]}: both must be over the same vocabulary"
        )
