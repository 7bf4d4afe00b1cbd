"""Very cheap draft model: interpolated n-grams of a corpus and of the text so far.

The distribution mixes the earlier followers of the last token, the last two tokens, ..., and the
uniform distribution, so every token has positive probability.  The weight of each length depends on
how predictable its followers are (Witten and Bell 1991, as in Chen and Goodman 1999, section 2.4).
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from otlp.checks import token_ids, whole_number
from otlp.decode.models.model import Sampling
from otlp.decode.models.occurrences import Corpus, followers
from otlp.decode.models.text_model import TextModel
from otlp.distribution import FloatArray, IntArray

NOTHING: IntArray = np.empty(0, dtype=np.int64)


class NGram(TextModel):
    """Interpolated n-grams, counted in a corpus, the prompt, and the generated tokens.

    Parameters
    ----------
    vocab_size : int
        Vocabulary size V.
    order : int
        Length of the longest n-gram: up to ``order - 1`` last tokens are matched.
    corpus : array_like of int, shape (T,), optional
        Token ids of a text whose n-grams are counted too.
    sampling : Sampling, optional
        Sampling applied to the logarithms of the distribution.
    name : str
        Name of the model.

    Raises
    ------
    InvalidInputError
        If V or `order` is less than 1, or the corpus is not a list of token ids.

    Notes
    -----
    Let c(h, y) count how often y followed h, let c(h) be its sum over y, and let t(h) be the number
    of distinct followers.  Then P(y | h) = (c(h, y) + t(h) P(y | h')) / (c(h) + t(h)), where h' is
    h without its first token; the empty h interpolates with 1/V.  A call takes O(V + T) time per
    node, where T is the length of the text, plus time linear in the occurrences of the last token
    in the corpus.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import NGram
    >>> model = NGram(4, order=3)
    >>> model.distribution(np.array([0, 1, 2, 0, 1])).round(3).tolist()
    [0.086, 0.086, 0.805, 0.023]
    """

    def __init__(
        self,
        vocab_size: int,
        order: int = 5,
        corpus: npt.ArrayLike = (),
        sampling: Sampling | None = None,
        name: str = "ngram",
    ) -> None:
        super().__init__(vocab_size, name, sampling)
        self.order = whole_number(order, "order")
        self.corpus = token_ids(corpus, "the corpus", self.vocab_size)
        self._corpus = Corpus(self.corpus, self.vocab_size) if self.corpus.size else None

    def distribution(self, text: IntArray) -> FloatArray:
        """Return the next-token distribution after a text; see the class."""
        counts = np.bincount(text, minlength=self.vocab_size)
        lengths = [followers(text, self.order - 1)]
        if self._corpus is not None:
            counts = counts + self._corpus.counts
            lengths.append(self._corpus.followers(text, self.order - 1))
        seen = [np.concatenate(found) for found in zip_longest(*lengths, fillvalue=NOTHING)]
        levels = [self._count(tokens) for tokens in reversed(seen)]
        return self._interpolate([*levels, _positive(counts)])

    def _count(self, tokens: IntArray) -> tuple[IntArray, IntArray]:
        """Return the distinct tokens and their counts, by the cheaper of two methods."""
        if tokens.size < self.vocab_size // 16:
            found, counts = np.unique(tokens, return_counts=True)
            return found, counts
        return _positive(np.bincount(tokens, minlength=self.vocab_size))

    def _interpolate(self, levels: list[tuple[IntArray, IntArray]]) -> FloatArray:
        mixed = np.zeros(self.vocab_size)
        weight = 1.0
        for tokens, counts in levels:
            total = int(counts.sum()) + tokens.size
            if total:
                mixed[tokens] += weight * counts / total
                weight *= tokens.size / total
        mixed += weight / self.vocab_size
        return mixed


def _positive(counts: IntArray) -> tuple[IntArray, IntArray]:
    tokens = np.flatnonzero(counts)
    return tokens, counts[tokens]
