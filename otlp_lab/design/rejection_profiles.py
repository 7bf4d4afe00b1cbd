"""Trees whose siblings are drawn without replacement and tried in order, valued along a text.

Which siblings were rejected before the one that the text goes on with is not known from the text:
they are sampled, given that they were rejected.  Everything else is exact, so that the estimates
are unbiased, and independent for each place.

Source: Chen et al. 2024, Sequoia, sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from otlp.decode.drafting import ShapedDrafting
from otlp.distribution import FloatArray, invert_cdf
from otlp.drafts import WithoutReplacement
from otlp.errors import InvalidInputError
from otlp_lab.design.profiles import UNSEEN, profile
from otlp_lab.design.text_renewal import WrittenText


def acceptance_by_try(
    texts: Sequence[WrittenText], count: int, rng: np.random.Generator
) -> FloatArray:
    """Probability that recursive rejection without replacement accepts at each try: Sequoia's."""
    found, rows = np.zeros(count), 0
    for text in texts:
        for _, p, q in text.places:
            rows += 1
            for at, (chance, _, left, draft) in enumerate(_tries(p, q, 1.0, count, rng)):
                found[at] += chance * float(np.minimum(left, draft).sum())
    return found / rows


def rejection_profile(
    text: WrittenText,
    drafting: ShapedDrafting,
    length: int,
    rule: Literal["recursive-rejection", "traversal"],
    rng: np.random.Generator,
) -> FloatArray:
    """Estimate A/P on trees whose siblings are drawn without replacement.

    Parameters
    ----------
    text : WrittenText
    drafting : ShapedDrafting
        Of the kind ``"without-replacement"``.
    length : int
        At least the drafting's.
    rule : str
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (T - length, length + 1)
        Unbiased, but that a row ends where it falls below `UNSEEN`; rows are independent.

    Raises
    ------
    InvalidInputError
        If the siblings are drawn otherwise, the paths are longer than `length`, the text has no
        more tokens, or it is another rule.
    """
    text.starts(length)  # refuses what is no length of this text
    distinct = drafting.kind in ("without-replacement", WithoutReplacement)
    if not distinct or drafting.length > length:
        raise InvalidInputError(
            f"the siblings are {drafting.kind}, on paths of {drafting.length} tokens: they must be "
            f"drawn without-replacement, on paths of at most {length}"
        )
    if rule not in ("recursive-rejection", "traversal"):
        raise InvalidInputError(f"rule is {rule!r:.40}: choose recursive-rejection or traversal")
    keeps = rule == "traversal"

    def along(start: int) -> Iterator[float]:
        level = [(0, 1.0, 1.0)]
        for place in range(start, start + drafting.length):
            token, p, q = text.places[place]
            deeper: list[tuple[int, float, float]] = []
            for slot, mass, weight in level:
                below = drafting.children[slot]
                tries = _tries(p, q, weight, len(below), rng)
                for child, (chance, w, left, draft) in zip(below, tries, strict=False):
                    accepted = min(float(draft[token]), w * float(left[token]))
                    if accepted > 0.0:
                        # Gamma/P of the child, and the weight that it is tried with
                        tried = accepted / float(draft[token]) if keeps else 1.0
                        reached = mass * chance * accepted / (tried * float(p[token]))
                        if reached * tried > UNSEEN * 1e-1:
                            deeper.append((child, reached, tried))
            yield sum(mass * weight for _, mass, weight in deeper)
            level = deeper

    return profile(text, length, along)


def _tries(
    p: FloatArray, q: FloatArray, weight: float, count: int, rng: np.random.Generator
) -> Iterator[tuple[float, float, FloatArray, FloatArray]]:
    """Chance to get to each try, without replacement, and weight, p and q there."""
    chance = 1.0
    for _ in range(count):
        yield chance, weight, p, q
        beyond = q - weight * p
        rejected = np.maximum(beyond, 0.0)
        total = float(rejected.sum())
        chance *= total
        left = np.maximum(-beyond, 0.0)
        missing = float(left.sum())
        if chance < UNSEEN * 1e-2 or missing <= 0.0:
            return
        drawn = int(invert_cdf(np.cumsum(rejected), rng.random()))
        p, weight = left / missing, missing / (missing + (1.0 - weight))
        q = q.copy()
        q[drawn] = 0.0
        rest = float(q.sum())
        if rest <= 0.0:
            return
        q /= rest
