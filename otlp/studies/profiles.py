"""Accepted mass along a text for rules other than tournament: a row for each place, by depth.

Greedy multi-path, the highest of K i.i.d. paths, is exact.  Other rules depend on the siblings that
were drafted with the text's next token, and these are sampled: given that it is among them where a
plan at each node says which token goes on, given that they were rejected where children are tried
in order (Sequoia, traversal).  Everything else is exact: unbiased estimates of A/P, independent for
each place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from otlp.decode.design.profiles import UNSEEN
from otlp.decode.design.text_renewal import WrittenText
from otlp.decode.drafting import ShapedDrafting
from otlp.decode.verification import TopDown
from otlp.decode.verification.block import next_weight
from otlp.decode.verification.greedy_multipath import Consecutive, whole_interval
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import IID

LARGEST = 1.0 - 2.0**-53
"""A probability below 1: the logarithm of what it leaves is finite."""


def _profile(text: WrittenText, length: int, along: Callable[[int], Iterator[float]]) -> FloatArray:
    """A/P by depth where a round may begin; a row ends where it falls below `UNSEEN`."""
    profile = np.zeros((text.starts(length), length + 1))
    profile[:, 0] = 1.0
    for start, row in enumerate(profile):
        for depth, mass in enumerate(along(start), 1):
            row[depth] = mass
            if mass < UNSEEN:
                break
    return profile


def greedy_profile(text: WrittenText, paths: int, length: int) -> FloatArray:
    """A/P of K i.i.d. paths of L tokens, exact; the first columns are those of shorter paths.

    Parameters
    ----------
    text : WrittenText
    paths, length : int
        K and L.

    Returns
    -------
    ndarray, shape (T - L, L + 1)

    Notes
    -----
    O(T L) steps, at O(V) each.
    """

    def along(start: int) -> Iterator[float]:
        state, weight, mass = whole_interval(paths), 1.0, 1.0
        for place in range(start, start + length):
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
            if q[token] <= 0.0:
                return
            below = Consecutive(state, p, q)
            skewed = float(q[token]) * below.ratio(token)
            mass *= min(1.0, skewed / (weight * float(p[token])))
            yield mass
            weight = next_weight(weight, float(p[token]), skewed)
            state = below.child(token)

    return _profile(text, length, along)


def top_down_profile(
    text: WrittenText,
    drafting: ShapedDrafting,
    length: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Estimate A/P on trees whose siblings are i.i.d., with the optimum's plan at each node.

    Parameters
    ----------
    text : WrittenText
    drafting : ShapedDrafting
        Of the kind ``"iid"``.
    length : int
        At least the drafting's.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (T - length, length + 1)
        Unbiased, but that a row ends where it falls below `UNSEEN`; rows are independent.
    """
    rule = TopDown()

    def along(start: int) -> Iterator[float]:
        slots, mass = [0], 1.0
        for place in range(start, start + drafting.length):
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
            below = [child for slot in slots for child in drafting.children[slot]]
            if not below or q[token] <= 0.0:
                return
            chance, siblings = _with_token(q, token, len(below), rng)
            plan = rule.plan(IID(q, siblings.size), p)
            mass = mass * chance * plan.conditional(siblings)[token] / p[token]
            yield mass
            slots = [below[at] for at in np.flatnonzero(siblings == token)]

    return _profile(text, length, along)


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
        if rest <= 1e-12:
            return
        q /= rest


def acceptance_by_try(
    texts: Sequence[WrittenText], count: int, rng: np.random.Generator
) -> FloatArray:
    """Probability that recursive rejection without replacement accepts at each try: Sequoia's."""
    found, rows = np.zeros(count), 0
    for text in texts:
        for p, q in zip(text.targets, text.drafts, strict=True):
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
    """
    keeps = rule == "traversal"

    def along(start: int) -> Iterator[float]:
        level = [(0, 1.0, 1.0)]
        for place in range(start, start + drafting.length):
            token, p, q = int(text.tokens[place]), text.targets[place], text.drafts[place]
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

    return _profile(text, length, along)
