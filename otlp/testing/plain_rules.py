"""Rules of one token and of a path, in plain Python, and the mistakes that are made of them.

Each takes drafted tokens, p, q and a function that gives uniform numbers in [0, 1), and returns
tokens: `RULES`, each with `MUTANTS` of its own that are not lossless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from otlp.testing.plain_block import Law, Random, draw, verify_block
from otlp.testing.plain_two_slice import slices, verify_two_slice

PlainRule: TypeAlias = Callable[[Any, Any, Any, Random], list[int]]


def left_over(p: Law, q: Law) -> list[float]:
    """(p - q)+, or p where that is empty."""
    left = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    return left if sum(left) > 0.0 else list(p)


def normalized(weights: Law) -> list[float]:
    """Weights, summing to one."""
    total = sum(weights)
    return [weight / total for weight in weights]


def speculative(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """One path, token by token: a coin each, then one number for the last token."""
    for at, token in enumerate(tokens[0]):
        ours, its = p[0][at], q[0][at]
        first, second = (its, ours) if mistake == "p and q swapped" else (ours, its)
        if mistake == "everything accepted" or random() * second[token] < first[token]:
            continue
        if mistake == "rejected tokens from p":
            return [*tokens[0][:at], draw(ours, random)]
        if mistake == "residual without the token alone":
            rest = [0.0 if i == token else value for i, value in enumerate(ours)]
            return [*tokens[0][:at], draw(rest, random)]
        return [*tokens[0][:at], draw(left_over(ours, its), random)]
    return [*tokens[0], draw(p[0][-1], random)]


def block(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """One path as a block: a coin for the whole, one a shorter prefix, then the last token."""
    if not mistake:
        return verify_block(tokens[0], p[0], q[0], random)
    path, weights = tokens[0], [1.0]
    for token, ours, its in zip(path, p[0], q[0], strict=False):
        ratio = ours[token] / its[token] * weights[-1]
        weights.append(ratio if mistake == "ratio never cut at one" else min(1.0, ratio))
    for at in range(len(path), 0, -1):  # the coins of token verification, from the end
        if random() < min(1.0, weights[at]):
            break
    else:
        at = 0
    if at == len(path):
        return [*path, draw(p[0][at], random)]
    scaled = [min(1.0, weights[at]) * value for value in p[0][at]]
    return [*path[:at], draw(left_over(scaled, q[0][at]), random)]


def recursive(
    tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "", replaced: bool = True
) -> list[int]:
    """Drafts in turn against what is left of the target: a coin each, then the last token."""
    ours, its = list(p), list(q)
    for token in tokens:
        if random() * its[token] < ours[token]:
            return [token]
        if mistake != "residual never updated":
            ours = normalized(left_over(ours, its))
        if not replaced:
            its[token] = 0.0
            if mistake != "q not renormalised":
                its = normalized(its) if sum(its) > 0.0 else its
    if mistake == "residual never updated":
        ours = left_over(p, q)
    return [draw(ours, random)]


def without_replacement(
    tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = ""
) -> list[int]:
    """`recursive` for drafts that differ."""
    return recursive(tokens, p, q, random, mistake, replaced=False)


def k_seq(tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "") -> list[int]:
    """Each draft accepted with p / (rho q), a coin each; then one number for the last token.

    rho solves 1 - (1 - b)^n = rho b with b = sum min(q, p / rho).  Source: Sun et al. 2023.
    """
    low, high = 1.0, float(len(tokens))
    for _ in range(60):
        rho = 0.5 * (low + high)
        b = sum(min(d, t / rho) for t, d in zip(p, q, strict=True))
        low, high = (rho, high) if 1.0 - (1.0 - b) ** len(tokens) > rho * b else (low, rho)
    rho = 1.0 if mistake == "no division by rho" else high
    kept = [min(d, t / rho) for t, d in zip(p, q, strict=True)]
    for token in tokens:
        if random() * q[token] < kept[token]:
            return [token]
    b = sum(kept)
    times = (1.0 - (1.0 - b) ** len(tokens)) / b if b else 0.0
    if mistake == "residual of one draft":
        times = 1.0
    return [draw(left_over(p, [times * value for value in kept]), random)]


def two_slice(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """Each path a step of scores and a place on it; then the best path as a block."""
    if not mistake:
        return verify_two_slice(tokens, p, q, random)
    numbers = [random() for _ in range(2 * len(tokens))]
    scores = dict(enumerate(numbers[1::2]))
    best = max(range(len(tokens)), key=scores.__getitem__)
    law, _ = slices([(0.0, 1.0, 1.0)], 1.0, p[best][0], q[best][0], len(tokens))
    return verify_block(tokens[best], p[best], [law, *q[best][1:]], random)


def race(law: Law, numbers: Sequence[float]) -> int:
    """The first of waiting times -log(u) / law."""
    times = [-math.log(max(u, 1e-300)) / max(w, 1e-300) for u, w in zip(numbers, law, strict=True)]
    return times.index(min(times))


def coupled(tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "") -> list[int]:
    """A race of p with the numbers that drafted by a race of q: a number a token of the vocabulary.

    The draft is accepted if it is what comes out.
    """
    numbers = [random() for _ in p]
    token = race(p, numbers)
    if mistake == "drawn anew where they differ" and token != tokens[0]:
        return [draw(p, random)]
    if mistake == "the draft's own race":
        return [race(q, numbers)]
    return [token]


RULES: dict[str, PlainRule] = {
    "speculative": speculative,
    "block": block,
    "recursive-rejection": recursive,
    "recursive-rejection-without-replacement": without_replacement,
    "k-seq": k_seq,
    "two-slice": two_slice,
    "coupled": coupled,
}

MUTANTS: dict[str, tuple[str, ...]] = {
    "speculative": (
        "p and q swapped",
        "everything accepted",
        "rejected tokens from p",
        "residual without the token alone",
    ),
    "block": ("ratio never cut at one", "coins of prefixes without their residuals"),
    "recursive-rejection": ("residual never updated",),
    "recursive-rejection-without-replacement": ("q not renormalised", "residual never updated"),
    "k-seq": ("no division by rho", "residual of one draft"),
    "two-slice": ("scores not those of the drafts",),
    "coupled": ("drawn anew where they differ", "the draft's own race"),
}
"""By rule: what each mistake is called."""
