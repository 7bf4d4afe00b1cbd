"""Drafts that share the target's noise, in plain Python: to read, and to port from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

Law = Sequence[float]

WORD, GAMMA = 2**64, 0x9E3779B97F4A7C15


def exponential(seed: int, place: int, token: int) -> float:
    """Exponential variable of a token at a place of the text: the noise, SplitMix64's numbers."""
    bits = 0
    for word in (seed, place):
        bits = _mixed(bits + (word + 1) * GAMMA)
    bits = _mixed(bits + (token + 1) * GAMMA)
    return -log(((bits >> 12) + 0.5) * 2.0**-52)


def _mixed(bits: int) -> int:
    bits %= WORD
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % WORD
    return bits ^ (bits >> 31)


def candidates(law: Law, seed: int, place: int, count: int) -> list[int]:
    """The best of the race: of the draft's law what to draft, the first of the target's its draw.

    Parameters
    ----------
    law : sequence of float
        Next-token distribution.
    seed, place : int
        The place is that of the token in the text.
    count : int
        How many.
    """
    ratios = [chance / exponential(seed, place, token) for token, chance in enumerate(law)]
    possible = [token for token, chance in enumerate(law) if chance > 0.0]
    return sorted(possible, key=lambda token: -ratios[token])[:count]


def verify_equality(
    children: Callable[[list[int]], Sequence[int]],
    target: Callable[[list[int]], Law],
    seed: int,
    place: int,
) -> list[int]:
    """Go down the tree along the target's own draws; the last token is not in the tree.

    Parameters
    ----------
    children : callable
        From the tokens below the root to those drafted after them, possibly none.
    target : callable
        Likewise to the target's next-token distribution.
    seed, place : int
        The place of the next token of the text.

    Returns
    -------
    list of int
        One token or more: those that plain decoding with this seed writes.
    """
    tokens: list[int] = []
    while True:
        drafted = children(tokens)
        tokens.append(candidates(target(tokens), seed, place + len(tokens), 1)[0])
        if tokens[-1] not in drafted:
            return tokens
