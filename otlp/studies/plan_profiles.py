"""Accepted mass along a text for top-down rules: a plan at each node says which token goes on.

Whether the text's next token goes on depends on the siblings that were drafted with it, and so
does how many slots go on.  The siblings are sampled given that the token is among them, and
everything else is exact: unbiased estimates of A/P, independent for each place.
"""

from __future__ import annotations

import numpy as np

from otlp.decode.design.profiles import UNSEEN
from otlp.decode.design.text_renewal import WrittenText
from otlp.decode.drafting import ShapedDrafting
from otlp.decode.verification import TopDown
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import IID

LARGEST = 1.0 - 2.0**-53
"""A probability below 1: the logarithm of what it leaves is finite."""


def top_down_profile(
    text: WrittenText,
    drafting: ShapedDrafting,
    length: int,
    rng: np.random.Generator,
    rule: TopDown | None = None,
) -> FloatArray:
    """Estimate A/P on trees whose siblings are i.i.d.

    Parameters
    ----------
    text : WrittenText
    drafting : ShapedDrafting
        Of the kind ``"iid"``.
    length : int
        At least the drafting's.
    rng : numpy.random.Generator
    rule : TopDown, optional
        By default that of the optimum at each node.

    Returns
    -------
    ndarray, shape (T - length, length + 1)
        Unbiased, but that a row ends where it falls below `UNSEEN`; rows are independent.
    """
    rule = TopDown() if rule is None else rule
    profile = np.zeros((text.starts(length), length + 1))
    profile[:, 0] = 1.0
    for start, row in enumerate(profile):
        slots = [0]
        for depth in range(drafting.length):
            place = start + depth
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
            below = [child for slot in slots for child in drafting.children[slot]]
            if not below or q[token] <= 0.0:
                break
            chance, siblings = _with_token(q, token, len(below), rng)
            plan = rule.plan(IID(q, siblings.size), p)
            row[depth + 1] = row[depth] * chance * plan.conditional(siblings)[token] / p[token]
            if row[depth + 1] < UNSEEN:
                break
            slots = [below[at] for at in np.flatnonzero(siblings == token)]
    return profile


def _with_token(
    q: FloatArray, token: int, count: int, rng: np.random.Generator
) -> tuple[float, IntArray]:
    """Chance that i.i.d. draws hold a token, and such draws, given that they do."""
    missed = np.log1p(-min(float(q[token]), LARGEST))
    chance = -np.expm1(count * missed)
    first = min(int(np.log1p(-chance * rng.random()) / missed), count - 1)
    others = q.copy()
    others[token] = 0.0
    before = invert_cdf(np.cumsum(others), rng.random(first))
    after = invert_cdf(np.cumsum(q), rng.random(count - 1 - first))
    return float(chance), np.concatenate([before, [token], after])
