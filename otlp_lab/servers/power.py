"""Power of the test of a server, from biases planted in resampled texts.

Both sides are resampled from the collected texts, and one side moves a known share of the mass to
some of these texts.  The power depends on these texts, so there are two shapes of biases: the
easiest to detect, and nearly the hardest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from otlp.distribution import IntArray, Mask
from otlp_lab.servers.betting import Bets, Pieces

SIZES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4)
"""Total variations of planted biases."""

RUNS, FOUND = 10, 9
"""A bias counts as found if `FOUND` of `RUNS` runs find it."""

Texts = Sequence[Pieces]


def rarest(texts: Texts) -> Mask:
    """Mark one text with the smallest count."""
    counts = Counter(texts)
    one = min(counts, key=lambda text: (counts[text], text))
    return np.array([text == one for text in texts])


def half(texts: Texts) -> Mask:
    """Mark the first words that vary, most frequent first, up to half of the texts."""
    longest = max(map(len, texts))
    place = next((n for n in range(1, longest) if len({text[:n] for text in texts}) > 1), longest)
    marked, taken = set(), 0
    for first, count in Counter(text[:place] for text in texts).most_common():
        if 2 * (taken + count) <= len(texts):
            marked.add(first)
            taken += count
    return np.array([text[:place] in marked for text in texts])


SHAPES: Mapping[str, Callable[[Texts], Mask]] = {
    "towards one text of each prompt": rarest,
    "towards half of the first words": half,
}
"""Functions that mark the texts to which a bias moves mass, by name of the shape."""


def smallest_found(texts: Sequence[Texts], pairs: int, limit: float, seed: int) -> dict[str, float]:
    """Find the smallest bias of each shape that is found in 9 of 10 runs of `pairs` pairs.

    Parameters
    ----------
    texts : sequence of sequences of tuple of str
        Collected texts of each prompt.
    pairs : int
    limit : float
        Logarithm of the wealth at which a bias is found.
    seed : int

    Returns
    -------
    dict of str to float
        Total variation by shape, one of `SIZES`; 1 if no size is found.

    Notes
    -----
    Bisection, assuming that larger biases are easier to find; about 80 runs.
    """
    rng = np.random.default_rng(seed)
    texts = [own for own in texts if own]

    def found(marks: Sequence[Mask], size: float) -> bool:
        bets, rounds = Bets(), -(-pairs // len(texts))
        drawn = [_draw(own, size, rounds, rng) for own in marks]
        for number in range(pairs):
            prompt, own = number % len(texts), texts[number % len(texts)]
            biased, fair = drawn[prompt][:, number // len(texts)]
            bets.bet(prompt, own[biased], own[fair])
            if bets.most >= limit:
                return True
        return False

    def often(marks: Sequence[Mask], size: float) -> bool:
        return sum(found(marks, size) for _ in range(RUNS)) >= FOUND

    smallest = {}
    for name, shape in SHAPES.items():
        marks = [shape(own) for own in texts]
        at = bisect_left(SIZES, True, key=lambda size: often(marks, size))
        smallest[name] = (*SIZES, 1.0)[at]
    return smallest


def _draw(marked: Mask, size: float, count: int, rng: np.random.Generator) -> IntArray:
    """Draw the indices of texts of both sides, the biased side first, shape (2, count)."""
    drawn = rng.integers(marked.size, size=(2, count))
    if 0.0 < marked.mean() < 1.0:
        moved = ~marked[drawn[0]] & (rng.random(count) < size / (1.0 - marked.mean()))
        drawn[0, moved] = rng.choice(np.flatnonzero(marked), size=moved.sum())
    return drawn
