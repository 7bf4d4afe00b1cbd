"""A draft model that copies: what followed the longest repeated end of the text before."""

from __future__ import annotations

import numpy as np

from otlp.checks import whole_number
from otlp.decode.models.model import Sampling
from otlp.decode.models.occurrences import followers
from otlp.decode.models.text_model import TextModel
from otlp.distribution import FloatArray, IntArray


class PromptLookup(TextModel):
    """Relative frequencies of the tokens that followed the longest repeated end of the text.

    Prompt lookup as engines have it drafts one such continuation; here it is a distribution, and
    every algorithm that takes a draft model takes this one.  It is sharp where the text repeats
    itself, as in summaries and edits, and poor elsewhere: mix it with another (`Mixture`).

    Parameters
    ----------
    vocab_size : int
        Vocabulary size V.
    longest : int
        How many last tokens are looked for at most.
    sampling : Sampling, optional
        What becomes of the distribution, whose logarithms are the logits.

    Raises
    ------
    InvalidInputError
        If V or `longest` is less than 1.

    Notes
    -----
    If the last token is new, the distribution is that of the tokens of the text; if there is no
    text, it is uniform.  O(V + T) time a node, T the length of the text.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode import PromptLookup
    >>> PromptLookup(4).distribution(np.array([0, 1, 2, 0, 1, 3, 0, 1])).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """

    def __init__(
        self, vocab_size: int, longest: int = 10, sampling: Sampling | None = None
    ) -> None:
        super().__init__(vocab_size, "lookup", sampling)
        self.longest = whole_number(longest, "longest")

    def distribution(self, text: IntArray) -> FloatArray:
        """Next-token distribution after a text; see the class."""
        seen = text if text.size else np.arange(self.vocab_size)
        for found in followers(text, self.longest):
            seen = found
        return np.bincount(seen, minlength=self.vocab_size) / seen.size
