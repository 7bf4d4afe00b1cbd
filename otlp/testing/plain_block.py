"""Block verification of one drafted path, in plain Python: to read, and to port from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Law = Sequence[float]
Random = Callable[[], float]


def verify_block(
    tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law], random: Random
) -> list[int]:
    """Accept a prefix of the path, and draw one token more.

    Source: Sun et al. 2024, Algorithm 2.

    Parameters
    ----------
    tokens : sequence of int
        The drafted path, L tokens.
    p, q : sequence of sequence of float
        The target's distributions before each token and after the last, L + 1 of them, and those
        that the tokens were drawn from, L of them; each of V numbers.
    random : callable
        Gives uniform numbers in [0, 1), such as ``random.random``.

    Returns
    -------
    list of int
        One to L + 1 tokens.
    """
    weights = [1.0]
    for token, target, draft in zip(tokens, p, q, strict=False):
        wanted = weights[-1] * target[token]
        weights.append(1.0 if wanted >= draft[token] else wanted / draft[token])
    if random() < weights[-1]:
        return [*tokens, draw(p[len(tokens)], random)]
    for at in range(len(tokens) - 1, -1, -1):
        left = [max(weights[at] * t - d, 0.0) for t, d in zip(p[at], q[at], strict=True)]
        total = sum(left)
        if at == 0:
            return [draw(left if total > 0.0 else p[0], random)]
        if total > 0.0 and random() < total / (total + 1.0 - weights[at]):
            return [*tokens[:at], draw(left, random)]
    return [draw(p[0], random)]


def draw(weights: Law, random: Random) -> int:
    """Draw a place in proportion to its weight."""
    bar, reached, last = random() * sum(weights), 0.0, 0
    for at, weight in enumerate(weights):
        reached += weight
        if weight > 0.0:
            last = at
            if bar < reached:
                return at
    return last
