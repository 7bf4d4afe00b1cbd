"""Draft model that copies repeated parts of the text, on top of any model.

A small network does not look far back, while code and answers about a text often repeat the text.
The tokens that followed an earlier occurrence of the end of the text receive a share of the draft's
distribution, which grows with the length of the repeated end; the model receives the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otlp.checks import is_a, real_array
from otlp.decode.models.model import Model, Sampling
from otlp.decode.models.occurrences import followers
from otlp.decode.tree import TokenTree
from otlp.distribution import FloatArray, IntArray, logarithms, softmax
from otlp.errors import InvalidInputError

SHARES = (0.1, 0.5, 0.8, 0.9, 0.9)
"""Shares of copied tokens for a repeated end of 1, 2, ... tokens; the last applies to longer ends.

Best values to one decimal for `smollm2-draft` after HumanEval problems 50 to 69.
"""


class Copying(Model):
    """Model mixed with the tokens that followed earlier occurrences of the end of the text.

    Parameters
    ----------
    model : Model
        Model to mix with copied tokens; its own sampling is ignored.
    shares : sequence of float
        Shares in [0, 1] of the copied tokens if the longest repeated end of the text has 1, 2, ...
        tokens.  At most as many tokens are matched as there are shares, so the last share applies
        to longer ends too.
    sampling : Sampling, optional
        Sampling applied to the logarithms of the mixture; by default the model's.

    Raises
    ------
    InvalidInputError
        If there is no share, a share is not in [0, 1], or the model already copies.

    Notes
    -----
    Let the repeated end have m tokens, let c(y) count how often y followed this end, and let c be
    the sum of c(y).  Then q(y) becomes (1 - s_m) q(y) + s_m c(y) / c, where s_m is the share.  If
    the last token is new, q is unchanged.  Costs one call of the model and O(V + T) per node, where
    T is the length of the text, including drafted tokens on the path to the node.

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
        is_a(model, Model, "the model of a Copying")
        if isinstance(model, Copying):
            raise InvalidInputError(f"{model.name} already copies: pass its attribute model")
        self.model = model
        self.shares = check_shares(shares)
        self.sampling = model.sampling if sampling is None else sampling
        is_a(self.sampling, Sampling, "sampling")
        self._context = np.empty(0, dtype=np.int64)

    @property
    def name(self) -> str:
        """Name of the model, with the shares unless they are `SHARES`."""
        given = "" if self.shares == SHARES else f"({','.join(f'{s:g}' for s in self.shares)})"
        return f"copying{given}:{self.model.name}"

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.model.vocab_size

    @property
    def context_limit(self) -> int | None:
        """Context limit of the model."""
        return self.model.context_limit

    def start(self, context: IntArray) -> None:
        """Start a text."""
        self.model.start(context)
        self._context = np.asarray(context, dtype=np.int64)

    def logits(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Return logarithms of the mixture after the nodes, shape (m, V); one call of the model."""
        mixed = softmax(np.asarray(self.model.logits(tree, nodes), dtype=np.float64))
        for row, node in zip(mixed, nodes.tolist(), strict=True):
            text = np.append(self._context, tree.path(node))
            ends = list(followers(text, len(self.shares)))
            if ends:
                share, seen = self.shares[len(ends) - 1], ends[-1]
                row *= 1.0 - share
                np.add.at(row, seen, share / seen.size)
        return logarithms(mixed)

    def advance(self, tree: TokenTree, node: int, token: int) -> None:
        """Append the path to `node`, then `token`."""
        self.model.advance(tree, node, token)
        self._context = np.concatenate([self._context, tree.path(node), [token]])


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Return the shares as floats; raise InvalidInputError if a share is not in [0, 1]."""
    found = real_array(shares, "shares", 1)
    if not bool(((found >= 0.0) & (found <= 1.0)).all()):
        raise InvalidInputError(
            "shares must be numbers in [0, 1] for repeated ends of 1, 2, ... tokens, got "
            f"{shares!r:.60}"
        )
    return tuple(map(float, found))


def network_and_shares(draft: Model) -> tuple[Model, tuple[float, ...]]:
    """Return the model behind a draft and its copying shares, empty if the draft does not copy."""
    return (draft.model, draft.shares) if isinstance(draft, Copying) else (draft, ())
