"""A draft that copies where the text repeats itself: any model, and the text so far.

A small network does not look far back, and code and answers about a text repeat it.  What followed
the longest repeated end of the text before has a share of the draft's distribution that grows with
the length of that end; the rest is the model's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otlp.checks import is_a, real_array
from otlp.decode.models.model import Model, Sampling
from otlp.decode.models.occurrences import followers
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, softmax
from otlp.errors import InvalidInputError

SHARES = (0.1, 0.5, 0.8, 0.9, 0.9)
"""Of what is copied, after a repeated end of 1, 2, ... tokens, and of as many or more.

The best, to a tenth, for `smollm2-draft` after HumanEval's problems 50 to 69.
"""


class Copying(Model):
    """A model's next-token distributions mixed with what followed the repeated end of the text.

    Parameters
    ----------
    model : Model
        Its own sampling is left aside.
    shares : sequence of float
        In [0, 1]: of the copied tokens, where the longest end of the text that was there before has
        1, 2, ... tokens.  No more tokens are looked for than there are shares, so the last is that
        of longer ends too.
    sampling : Sampling, optional
        What becomes of the mixture, whose logarithms are the logits; by default the model's.

    Raises
    ------
    InvalidInputError
        If there is no share, one is no number in [0, 1], or the model copies already.

    Notes
    -----
    With an end of m tokens, c(y) how often y followed it and c their sum, q(y) becomes
    (1 - s_m) q(y) + s_m c(y) / c, s_m the share; where the last token is new it stays q.  A call of
    the model, and O(V + T) a node, T the length of the text.  What is drafted on the way to a node
    counts as text.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import Copying, NGram
    >>> from otlp.decode.tree import ROOT
    >>> draft = Copying(NGram(4, order=1), [0.5, 0.9])
    >>> draft.start(np.array([0, 1, 2, 0, 1]))
    >>> draft.distributions(ROOT, np.array([0])).round(3).tolist()
    [[0.034, 0.034, 0.922, 0.009]]
    """

    def __init__(
        self,
        model: Model,
        shares: Sequence[float] = SHARES,
        sampling: Sampling | None = None,
    ) -> None:
        is_a(model, Model, "the model that copies")
        if isinstance(model, Copying):
            raise InvalidInputError(f"{model.name} copies already: give the model behind it")
        self.model = model
        self.shares = check_shares(shares)
        self.sampling = model.sampling if sampling is None else sampling
        is_a(self.sampling, Sampling, "sampling")
        self._context = np.empty(0, dtype=np.int64)

    @property
    def name(self) -> str:
        """The model's name and, unless they are `SHARES`, the shares: other shares, other draft."""
        given = "" if self.shares == SHARES else f"({','.join(f'{one:g}' for one in self.shares)})"
        return f"copying{given}:{self.model.name}"

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.model.vocab_size

    @property
    def context_limit(self) -> int | None:
        """The model's."""
        return self.model.context_limit

    def start(self, context: IntArray) -> None:
        """Begin a text."""
        self.model.start(context)
        self._context = np.asarray(context, dtype=np.int64)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Logarithms of the mixture after the given nodes, shape (m, V); a call of the model."""
        mixed = softmax(np.asarray(self.model.logits(tree, nodes), dtype=np.float64))
        for row, node in zip(mixed, nodes.tolist(), strict=True):
            text = np.append(self._context, tree.path(node))
            ends = list(followers(text, len(self.shares)))
            if ends:
                share, seen = self.shares[len(ends) - 1], ends[-1]
                row *= 1.0 - share
                np.add.at(row, seen, share / seen.size)
        with np.errstate(divide="ignore"):
            found: FloatArray = np.log(mixed)
        return found

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.model.advance(tree, node, token)
        self._context = np.concatenate([self._context, tree.path(node), [token]])


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares of what is copied, as floats; see `Copying` for what is refused."""
    found = real_array(shares, "shares", 1)
    if not bool(((found >= 0.0) & (found <= 1.0)).all()):
        raise InvalidInputError(
            f"shares is {shares!r:.60}: give for repeated ends of 1, 2, ... tokens a number in "
            "[0, 1]"
        )
    return tuple(map(float, found))


def network_and_shares(draft: Model) -> tuple[Model, tuple[float, ...]]:
    """Take what a draft copies off it: the model behind, and the shares, none if it copies not."""
    return (draft.model, draft.shares) if isinstance(draft, Copying) else (draft, ())
