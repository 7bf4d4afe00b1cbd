"""Block verification of one drafted path: reference implementation in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Law = Sequence[float]
Random = Callable[[], float]


def verify_block(
    tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law], random: Random
) -> list[int]:
    """Accept a prefix of the path and draw one more token.

    Source: Sun et al. 2024, Algorithm 2.

    Parameters
    ----------
    tokens : sequence of int
        The drafted path, L tokens.
    p, q : sequence of sequence of float
        Target distributions before each token and after the last (L + 1), and draft distributions
        of the tokens (L), each of V probabilities.
    random : callable
        Returns uniform numbers in [0, 1), such as ``random.random``.

    Returns
    -------
    list of int
        1 to L + 1 tokens.
    """
    weights = [1.0]
    for token, target, draft in zip(tokens, p, q, strict=False):
        wanted = weights[-1] * target[token]
        weights.append(1.0 if wanted >= draft[token] else wanted / draft[token])
    if random() < weights[-1]:
        return [*tokens, draw(p[len(tokens)], random)]
    for at in range(len(tokens) - 1, -1, -1):
        residual = [max(weights[at] * t - d, 0.0) for t, d in zip(p[at], q[at], strict=True)]
        total = sum(residual)
        if at == 0:
            return [draw(residual if total > 0.0 else p[0], random)]
        if total > 0.0 and random() < total / (total + 1.0 - weights[at]):
            return [*tokens[:at], draw(residual, random)]
    return [draw(p[0], random)]


def draw(weights: Law, random: Random) -> int:
    """Draw an index with probability proportional to its weight, by inversion."""
    threshold, cumulative, last = random() * sum(weights), 0.0, 0
    for at, weight in enumerate(weights):
        cumulative += weight
        if weight > 0.0:
            last = at
            if threshold < cumulative:
                return at
    return last
