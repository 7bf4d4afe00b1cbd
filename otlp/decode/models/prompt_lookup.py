"""Draft model that copies the tokens after earlier occurrences of the end of the text."""

from __future__ import annotations

import numpy as np

from otlp.checks import whole_number
from otlp.decode.models.model import Sampling
from otlp.decode.models.occurrences import followers
from otlp.decode.models.text_model import TextModel
from otlp.distribution import FloatArray, IntArray


class PromptLookup(TextModel):
    """Relative frequencies of the tokens that followed the longest repeated end of the text.

    Engines' prompt lookup drafts one such continuation.  Here prompt lookup is a distribution, so
    it works with every algorithm that uses a draft model.  It predicts well where the text repeats
    itself, as in summaries and edits, and poorly elsewhere: mix it with another model (`Mixture`).

    Parameters
    ----------
    vocab_size : int
        Vocabulary size V.
    longest : int
        Maximum number of last tokens to match.
    sampling : Sampling, optional
        Sampling applied to the logarithms of the distribution.

    Raises
    ------
    InvalidInputError
        If V or `longest` is less than 1.

    Notes
    -----
    If the last token is new, the distribution is the token frequencies of the text; for an empty
    text it is uniform.  O(V + T) time per node, where T is the length of the text.

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
        """Return the next-token distribution after a text; see the class."""
        seen = text if text.size else np.arange(self.vocab_size)
        for found in followers(text, self.longest):
            seen = found
        return np.bincount(seen, minlength=self.vocab_size) / seen.size
