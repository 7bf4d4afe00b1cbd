"""Drafts that share the target's noise: reference implementation in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

Law = Sequence[float]

WORD, GAMMA = 2**64, 0x9E3779B97F4A7C15


def exponential(seed: int, place: int, token: int) -> float:
    """Return the exponential noise of a token at a position of the text, from SplitMix64."""
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
    """Return the first tokens of the exponential race of a distribution.

    For the draft distribution these are the draft tokens; for the target distribution, the first
    token is the target's draw.

    Parameters
    ----------
    law : sequence of float
        Next-token distribution.
    seed, place : int
        Random seed, and position of the token in the text.
    count : int
        Number of tokens.
    """
    ratios = [mass / exponential(seed, place, token) for token, mass in enumerate(law)]
    possible = [token for token, mass in enumerate(law) if mass > 0.0]
    return sorted(possible, key=lambda token: -ratios[token])[:count]


def verify_equality(
    children: Callable[[list[int]], Sequence[int]],
    target: Callable[[list[int]], Law],
    seed: int,
    place: int,
) -> list[int]:
    """Descend the draft tree along the target's draws; the last token is not in the tree.

    Parameters
    ----------
    children : callable
        Returns the tokens drafted after a node (may be empty), given the tokens from root to node.
    target : callable
        Returns the target's next-token distribution, given the tokens from root to node.
    seed, place : int
        Random seed, and position of the next token in the text.

    Returns
    -------
    list of int
        One or more tokens, the same tokens as plain decoding with this seed.
    """
    tokens: list[int] = []
    while True:
        drafted = children(tokens)
        tokens.append(candidates(target(tokens), seed, place + len(tokens), 1)[0])
        if tokens[-1] not in drafted:
            return tokens
