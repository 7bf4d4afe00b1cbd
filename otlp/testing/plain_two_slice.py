"""Two-slice verification of K i.i.d. paths, in plain Python: to read, and to port from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otlp.testing.plain_block import Law, Random, draw, verify_block
from otlp.testing.plain_martingale import NOTHING, mean_score

Cells = list[tuple[float, float, float]]
"""A law of scores: low end, high end and mass of its steps."""

STEPS = 50
"""Halvings of the interval that holds the threshold."""


def verify_two_slice(
    tokens: Sequence[Sequence[int]],
    p: Sequence[Sequence[Law]],
    q: Sequence[Sequence[Law]],
    random: Random,
) -> list[int]:
    """Give every path a score, take the largest, and verify that path as a block.

    Source: `otlp.decode.TwoSlicePaths`; the proofs are on the page of blocks and paths.

    Parameters
    ----------
    tokens : sequence
        K paths of L tokens.
    p, q : sequence
        For each path, what `verify_block` takes.
    random : callable
        Gives uniform numbers in [0, 1).
    """
    best, chosen = -1.0, 0
    laws: list[list[list[float]]] = []
    for k, path in enumerate(tokens):
        cells, weight = [(0.0, 1.0, 1.0)], 1.0
        laws.append([])
        for token, target, draft in zip(path, p[k], q[k], strict=False):
            law, children = slices(cells, weight, target, draft, len(tokens))
            wanted = weight * target[token]
            weight = 1.0 if wanted >= law[token] else wanted / law[token]
            cells = children(token)
            laws[k].append(law)
        low, high, _ = cells[draw([mass for *_, mass in cells], random)]
        score = low + (high - low) * random()
        if score > best:
            best, chosen = score, k
    return verify_block(tokens[chosen], p[chosen], laws[chosen], random)


def slices(
    cells: Cells, weight: float, p: Law, q: Law, paths: int
) -> tuple[list[float], Callable[[int], Cells]]:
    """Cut a prefix's law of scores: the picked path's next token, and each child's own law."""
    whole = mean(cells, paths)

    def ratios(u: float) -> tuple[float, float, list[float]]:
        least, most = (mean(part, paths) / whole if part else 1.0 for part in cut(cells, u))
        found = [
            min(max(weight * t / d, least), most) if d > 0.0 else 0.0
            for t, d in zip(p, q, strict=True)
        ]
        return least, most, found

    low, high = min(cells)[0], max(cells)[1]
    for _ in range(STEPS):
        u = (low + high) / 2.0
        total = sum(d * r for d, r in zip(q, ratios(u)[2], strict=True))
        low, high = (u, high) if total < 1.0 else (low, u)
    least, most, found = ratios(u)
    below, above = cut(cells, u)
    share = sum(mass for *_, mass in below)
    if not NOTHING < share < 1.0 - NOTHING:  # no slice to speak of
        return list(q), lambda token: cells
    lower = [(most - r) / (most - least) if most > least else share for r in found]
    # losslessness rests on this sum alone
    held = sum(d * part for d, part in zip(q, lower, strict=True))
    if held > share:
        lower = [part * share / held for part in lower]
    elif held < 1.0:
        lower = [1.0 - (1.0 - part) * (1.0 - share) / (1.0 - held) for part in lower]
    law = [d * (part * least + (1.0 - part) * most) for d, part in zip(q, lower, strict=True)]

    def child(token: int) -> Cells:
        low, high = lower[token] / share, (1.0 - lower[token]) / (1.0 - share)
        parts = [(a, b, mass * low) for a, b, mass in below]
        parts += [(a, b, mass * high) for a, b, mass in above]
        return [part for part in parts if part[2] > 0.0]

    return law, child


def cut(cells: Cells, u: float) -> tuple[Cells, Cells]:
    """Parts of a law below and above a score."""
    below, above = [], []
    for low, high, mass in cells:
        middle = min(max(u, low), high)
        share = mass * (middle - low) / (high - low)
        if share > 0.0:
            below.append((low, middle, share))
        if mass > share:
            above.append((middle, high, mass - share))
    return below, above


def mean(cells: Cells, paths: int) -> float:
    """Mean of K u^(K-1) under a law, whatever its whole mass."""
    total = sum(mass for *_, mass in cells)
    return sum(mass * mean_score(low, high, paths) for low, high, mass in cells) / total
