"""Where the end of a text was met before, and what followed there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otlp.distribution import IntArray


class Corpus:
    """A long text that is asked again and again, indexed by token.

    Parameters
    ----------
    tokens : ndarray of int64, shape (T,)
        Token ids in [0, V).
    vocab_size : int
        Vocabulary size V.

    Notes
    -----
    O(T log T) time once, 16 T bytes.
    """

    def __init__(self, tokens: IntArray, vocab_size: int) -> None:
        self.tokens = tokens
        self.counts = np.bincount(tokens, minlength=vocab_size)
        self._places = np.argsort(tokens[:-1], kind="stable") + 1
        self._starts = np.searchsorted(tokens[self._places - 1], np.arange(vocab_size + 1))

    def followers(self, text: IntArray, longest: int) -> Iterator[IntArray]:
        """See `followers`; takes time for the occurrences of the last token, not for T."""
        if text.size:
            last = int(text[-1])
            places = self._places[self._starts[last] : self._starts[last + 1]]
            yield from _narrowing(self.tokens, places, text, longest)


def followers(text: IntArray, longest: int) -> Iterator[IntArray]:
    """Tokens that followed the last token of a text before, its last two, three, ...

    Parameters
    ----------
    text : ndarray of int64, shape (T,)
    longest : int
        How many last tokens to look for at most.

    Yields
    ------
    ndarray of int64, shape (m,), m >= 1
        One for each length that was met before; O(T) time for the first, O(m) for the others.
    """
    if text.size:
        yield from _narrowing(text, np.flatnonzero(text[:-1] == text[-1]) + 1, text, longest)


def _narrowing(
    tokens: IntArray, places: IntArray, text: IntArray, longest: int
) -> Iterator[IntArray]:
    """Followers at places that stand behind the last token, at those behind the last two, ..."""
    for length in range(2, longest + 2):
        if not places.size:
            return
        yield tokens[places]
        if length > text.size:
            return
        places = places[places >= length]
        places = places[tokens[places - length] == text[-length]]
