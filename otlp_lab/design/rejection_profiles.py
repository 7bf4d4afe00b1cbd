"""Text renewal of trees whose siblings are drawn without replacement and attempted in order.

The text does not determine the siblings that were rejected before the text's next token: these
siblings are sampled given their rejection.  All other steps are exact, so the estimates are
unbiased, and independent for each position.

Source: Chen et al. 2024, Sequoia, sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from otlp.decode.drafting import ShapedDrafting
from otlp.distribution import FloatArray, invert_cdf, renormalise_without
from otlp.drafts import WithoutReplacement
from otlp.errors import InvalidInputError
from otlp_lab.design.profiles import UNSEEN, profile
from otlp_lab.design.text_renewal import WrittenText


def acceptance_by_try(
    texts: Sequence[WrittenText], count: int, rng: np.random.Generator
) -> FloatArray:
    """Return the probability that recursive rejection (Sequoia) accepts at each attempt."""
    found, rows = np.zeros(count), 0
    for text in texts:
        for _, p, q in text.places:
            rows += 1
            for at, (chance, _, left, draft) in enumerate(_attempts(p, q, 1.0, count, rng)):
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
        Drafting of the kind ``"without-replacement"``.
    length : int
        Maximum round length, at least that of the drafting.
    rule : {"recursive-rejection", "traversal"}
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (T - length, length + 1)
        Unbiased estimates, truncated where a row falls below `UNSEEN`; rows are independent.

    Raises
    ------
    InvalidInputError
        If `drafting` has another kind or paths longer than `length`, the text has at most `length`
        tokens, or the rule is unknown.
    """
    text.starts(length)  # checks the length
    distinct = drafting.kind in ("without-replacement", WithoutReplacement)
    if not distinct or drafting.length > length:
        raise InvalidInputError(
            f"drafting must draw siblings without-replacement on paths of at most {length} tokens, "
            f"got {drafting.kind} siblings on paths of {drafting.length} tokens"
        )
    if rule not in ("recursive-rejection", "traversal"):
        raise InvalidInputError(f"rule must be recursive-rejection or traversal, got {rule!r:.40}")
    keeps = rule == "traversal"

    def along(start: int) -> Iterator[float]:
        level = [(0, 1.0, 1.0)]
        for place in range(start, start + drafting.length):
            token, p, q = text.places[place]
            deeper: list[tuple[int, float, float]] = []
            for slot, mass, weight in level:
                below = drafting.children[slot]
                attempts = _attempts(p, q, weight, len(below), rng)
                for child, (chance, w, left, draft) in zip(below, attempts, strict=False):
                    accepted = min(float(draft[token]), w * float(left[token]))
                    if accepted > 0.0:
                        # The child's weight, and its Gamma/P.
                        own = accepted / float(draft[token]) if keeps else 1.0
                        reached = mass * chance * accepted / (own * float(p[token]))
                        if reached * own > UNSEEN * 1e-1:
                            deeper.append((child, reached, own))
            yield sum(mass * weight for _, mass, weight in deeper)
            level = deeper

    return profile(text, length, along)


def _attempts(
    p: FloatArray, q: FloatArray, weight: float, count: int, rng: np.random.Generator
) -> Iterator[tuple[float, float, FloatArray, FloatArray]]:
    """Yield the probability of each attempt without replacement, with its weight, p and q."""
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
        drawn = invert_cdf(np.cumsum(rejected), rng.random())
        p, weight = left / missing, missing / (missing + (1.0 - weight))
        rest = renormalise_without(q, drawn)
        if rest is None:
            return
        q = rest
