"""Two-slice verification of K i.i.d. paths: reference implementation in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otlp.testing.plain_block import Law, Random, draw, verify_block
from otlp.testing.plain_martingale import NOTHING, mean_score

Cells = list[tuple[float, float, float]]
"""A piecewise constant law of scores: (low, high, density) of each step."""

Slices = tuple[list[float], Callable[[int], Cells]]
"""The selected path's law of the next token, and the law of scores of each child."""

PathLaws = Sequence[Sequence[Law]]
"""The distributions of each path."""

STEPS = 50
"""Number of bisection steps for the threshold."""


def verify_two_slice(
    tokens: Sequence[Sequence[int]], p: PathLaws, q: PathLaws, random: Random
) -> list[int]:
    """Draw a score for each path, select the largest, and verify the selected path as a block.

    Source: `otlp.decode.TwoSlicePaths`; for the proofs see docs/theory/paths.md.

    Parameters
    ----------
    tokens : sequence
        K paths of L tokens.
    p, q : sequence
        Distributions of each path, as for `verify_block`.
    random : callable
        Returns uniform numbers in [0, 1).
    """
    scored = list[tuple[float, int, list[list[float]]]]()
    for k, path in enumerate(tokens):
        cells, weight, laws = [(0.0, 1.0, 1.0)], 1.0, list[list[float]]()
        for token, target, draft in zip(path, p[k], q[k], strict=False):
            law, child = slices(cells, weight, target, draft, len(tokens))
            cells, wanted = child(token), weight * target[token]
            weight = 1.0 if wanted >= law[token] else wanted / law[token]
            laws.append(law)
        low, high, _ = cells[draw(masses(cells), random)]
        scored.append((low + (high - low) * random(), k, laws))
    _, k, laws = max(scored)
    return verify_block(tokens[k], p[k], laws, random)


def slices(cells: Cells, weight: float, p: Law, q: Law, paths: int) -> Slices:
    """Split the law of scores of a prefix; return the law of the next token and of the children."""
    whole = mean(cells, paths)
    low, high = min(cells)[0], max(cells)[1]
    for _ in range(STEPS):
        u = (low + high) / 2.0
        below, above = cut(cells, u)
        least, most = (mean(part, paths) / whole if part else 1.0 for part in (below, above))
        wanted = [weight * t / d if d > 0.0 else 0.0 for t, d in zip(p, q, strict=True)]
        ratios = [min(max(r, least), most) for r in wanted]
        total = sum(d * r for d, r in zip(q, ratios, strict=True))
        low, high = (u, high) if total < 1.0 else (low, u)
    share = sum(masses(below))
    if not NOTHING < share < 1.0 - NOTHING:  # One of the slices is empty up to rounding.
        return list(q), lambda token: cells
    lower = [(most - r) / (most - least) if most > least else share for r in ratios]
    # Losslessness only requires this sum to equal `share`; rescale to remove rounding errors.
    held = sum(d * part for d, part in zip(q, lower, strict=True))
    if held > share:
        lower = [part * share / held for part in lower]
    elif held < 1.0:
        lower = [1.0 - (1.0 - part) * (1.0 - share) / (1.0 - held) for part in lower]
    law = [d * (part * least + (1.0 - part) * most) for d, part in zip(q, lower, strict=True)]

    def child(token: int) -> Cells:
        sides = (below, lower[token] / share), (above, (1.0 - lower[token]) / (1.0 - share))
        return [(a, b, h * s) for side, s in sides for a, b, h in side if h * s > NOTHING]

    return law, child


def cut(cells: Cells, u: float) -> tuple[Cells, Cells]:
    """Return the parts of a law below and above a score."""
    below = [(low, min(high, u), density) for low, high, density in cells if low < u]
    return below, [(max(low, u), high, density) for low, high, density in cells if high > u]


def masses(cells: Cells) -> list[float]:
    """Return the mass of each step."""
    return [density * (high - low) for low, high, density in cells]


def mean(cells: Cells, paths: int) -> float:
    """Return the mean of K u^(K-1) under a law, normalized by its total mass."""
    scores = [mean_score(low, high, paths) for low, high, _ in cells]
    return sum(m * s for m, s in zip(masses(cells), scores, strict=True)) / sum(masses(cells))
