"""Tokens that followed earlier occurrences of the end of a text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otlp.distribution import IntArray


class Corpus:
    """Long text with an index by token, for repeated queries.

    Parameters
    ----------
    tokens : ndarray of int64, shape (T,)
        Token ids in [0, V).
    vocab_size : int
        Vocabulary size V.

    Notes
    -----
    Construction takes O(T log T) time; the index needs 16 T bytes.
    """

    def __init__(self, tokens: IntArray, vocab_size: int) -> None:
        self.tokens = tokens
        self.counts = np.bincount(tokens, minlength=vocab_size)
        self._positions = np.argsort(tokens[:-1], kind="stable") + 1
        self._starts = np.searchsorted(tokens[self._positions - 1], np.arange(vocab_size + 1))

    def __deepcopy__(self, memo: dict[int, object]) -> Corpus:
        """Return the object itself: a corpus is immutable."""
        return self

    def followers(self, text: IntArray, longest: int) -> Iterator[IntArray]:
        """See `followers`; the cost depends on the occurrences of the last token, not on T."""
        if text.size:
            last = int(text[-1])
            positions = self._positions[self._starts[last] : self._starts[last + 1]]
            yield from _match_longer(self.tokens, positions, text, longest)


def followers(text: IntArray, longest: int) -> Iterator[IntArray]:
    """Yield the tokens that followed earlier occurrences of the last token, last two tokens, ...

    Parameters
    ----------
    text : ndarray of int64, shape (T,)
    longest : int
        Maximum number of last tokens to match.

    Yields
    ------
    ndarray of int64, shape (m,), m >= 1
        Followers for each length with an earlier occurrence; O(T) time for the first length, O(m)
        for the others.
    """
    if text.size:
        yield from _match_longer(text, np.flatnonzero(text[:-1] == text[-1]) + 1, text, longest)


def _match_longer(
    tokens: IntArray, positions: IntArray, text: IntArray, longest: int
) -> Iterator[IntArray]:
    """Yield followers of matches of the last token, the last two tokens, ..., up to `longest`.

    `positions` are the positions in `tokens` after the matches of the last token.
    """
    for length in range(2, longest + 2):
        if not positions.size:
            return
        yield tokens[positions]
        if length > text.size:
            return
        positions = positions[positions >= length]
        positions = positions[tokens[positions - length] == text[-length]]
