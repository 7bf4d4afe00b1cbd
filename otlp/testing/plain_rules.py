"""Reference implementations of rules in plain Python, and mutants with typical mistakes.

Each rule in `RULES` is a function of the draft tokens, p, q and a generator of uniform numbers in
[0, 1), and returns tokens.  With a `mistake` from `MUTANTS`, the rule is not lossless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from otlp.testing.plain_block import Law, Random, draw, verify_block
from otlp.testing.plain_two_slice import slices, verify_two_slice

PlainRule: TypeAlias = Callable[[Any, Any, Any, Random, str], list[int]]


def residual(p: Law, q: Law) -> list[float]:
    """Return (p - q)+, or p if the residual is zero."""
    weights = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    return weights if sum(weights) > 0.0 else list(p)


def normalized(weights: Law) -> list[float]:
    """Return the weights divided by their sum."""
    total = sum(weights)
    return [weight / total for weight in weights]


def speculative(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """Verify one path token by token: one random number per test, then one for the last token."""
    for at, token in enumerate(tokens[0]):
        target, draft = p[0][at], q[0][at]
        first, second = (draft, target) if mistake == "p and q swapped" else (target, draft)
        if mistake == "everything accepted" or random() * second[token] < first[token]:
            continue
        if mistake == "correction drawn from p":
            return [*tokens[0][:at], draw(target, random)]
        if mistake == "p without the rejected token as residual":
            rest = [0.0 if i == token else value for i, value in enumerate(target)]
            return [*tokens[0][:at], draw(rest, random)]
        return [*tokens[0][:at], draw(residual(target, draft), random)]
    return [*tokens[0], draw(p[0][-1], random)]


def block(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """Verify one path as a block.

    Test the path, then each shorter prefix, with one random number each; then draw the last token.
    """
    if not mistake:
        return verify_block(tokens[0], p[0], q[0], random)
    path, weights = tokens[0], [1.0]
    for token, target, draft in zip(path, p[0], q[0], strict=False):
        ratio = target[token] / draft[token] * weights[-1]
        weights.append(ratio if mistake == "ratio not clipped at one" else min(1.0, ratio))
    for at in range(len(path), 0, -1):  # The longest prefix first.
        if random() < min(1.0, weights[at]):
            break
    else:
        at = 0
    if at == len(path):
        return [*path, draw(p[0][at], random)]
    scaled = [min(1.0, weights[at]) * value for value in p[0][at]]
    return [*path[:at], draw(residual(scaled, q[0][at]), random)]


def recursive(
    tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "", exclude: bool = False
) -> list[int]:
    """Verify the drafts in turn against the residual target, then draw the last token.

    With `exclude`, a rejected token is removed from q, as for drafts without replacement.
    """
    target, draft = list(p), list(q)
    for token in tokens:
        if random() * draft[token] < target[token]:
            return [token]
        if mistake != "residual never updated":
            target = normalized(residual(target, draft))
        if exclude:
            draft[token] = 0.0
            if mistake != "q not renormalised":
                draft = normalized(draft) if sum(draft) > 0.0 else draft
    if mistake == "residual never updated":
        target = residual(p, q)
    return [draw(target, random)]


def k_seq(tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "") -> list[int]:
    """Accept each draft with probability p / (rho q), in turn; then draw the last token.

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
    scale = (1.0 - (1.0 - b) ** len(tokens)) / b if b else 0.0
    if mistake == "residual of one draft":
        scale = 1.0
    return [draw(residual(p, [scale * value for value in kept]), random)]


def two_slice(
    tokens: Sequence[Sequence[int]], p: Any, q: Any, random: Random, mistake: str = ""
) -> list[int]:
    """Score each path with two random numbers; verify the path with the best score as a block."""
    if not mistake:
        return verify_two_slice(tokens, p, q, random)
    numbers = [random() for _ in range(2 * len(tokens))]
    scores = dict(enumerate(numbers[1::2]))
    best = max(range(len(tokens)), key=scores.__getitem__)
    law, _ = slices([(0.0, 1.0, 1.0)], 1.0, p[best][0], q[best][0], len(tokens))
    return verify_block(tokens[best], p[best], [law, *q[best][1:]], random)


def race(law: Law, numbers: Sequence[float]) -> int:
    """Return the index of the smallest waiting time -log(u) / law."""
    times = [-math.log(max(u, 1e-300)) / max(w, 1e-300) for u, w in zip(numbers, law, strict=True)]
    return times.index(min(times))


def coupled(tokens: Sequence[int], p: Law, q: Law, random: Random, mistake: str = "") -> list[int]:
    """Return the winner of a race of p, with the random numbers that selected the draft from q.

    One random number per token of the vocabulary; a draft that wins both races is accepted.
    """
    numbers = [random() for _ in p]
    token = race(p, numbers)
    if mistake == "independent draw after a rejection" and token != tokens[0]:
        return [draw(p, random)]
    if mistake == "winner of the race of q":
        return [race(q, numbers)]
    return [token]


RULES: dict[str, PlainRule] = {
    "speculative": speculative,
    "block": block,
    "recursive-rejection": recursive,
    "recursive-rejection-without-replacement": partial(recursive, exclude=True),
    "k-seq": k_seq,
    "two-slice": two_slice,
    "coupled": coupled,
}

MUTANTS: dict[str, tuple[str, ...]] = {
    "speculative": (
        "p and q swapped",
        "everything accepted",
        "correction drawn from p",
        "p without the rejected token as residual",
    ),
    "block": ("ratio not clipped at one", "prefixes accepted without residuals"),
    "recursive-rejection": ("residual never updated",),
    "recursive-rejection-without-replacement": ("q not renormalised", "residual never updated"),
    "k-seq": ("no division by rho", "residual of one draft"),
    "two-slice": ("scores independent of the drafts",),
    "coupled": ("independent draw after a rejection", "winner of the race of q"),
}
"""Names of the mistakes of each rule."""
