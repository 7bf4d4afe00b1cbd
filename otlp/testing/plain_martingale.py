"""Optimal rule for n i.i.d. drafts of one token: reference implementation in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from otlp.testing.plain_block import Law, Random, draw

Pieces = dict[int, list[tuple[float, float, float]]]
"""For each possible draft token: (low, high, mass) of the intervals of its score in [0, 1]."""

NOTHING = 1e-14
"""Smaller masses are treated as rounding errors."""


def verify_martingale(drafts: Sequence[int], p: Law, q: Law, random: Random) -> int:
    """Draw a score for each draft, select the draft with the largest score, and verify this draft.

    Source: `otlp.solvers.martingale`; for the proofs see docs/exact_solvers.md.

    Parameters
    ----------
    drafts : sequence of int
        n tokens drawn from q.
    p, q : sequence of float
        Target and draft distribution, V probabilities each.
    random : callable
        Returns uniform numbers in [0, 1).
    """
    laws = score_laws(p, q, len(drafts))
    picked, best = drafts[0], -1.0
    for token in drafts:
        low, high, _ = laws[token][draw([mass for *_, mass in laws[token]], random)]
        score = low + (high - low) * random()
        if score > best:
            picked, best = token, score
    y = picked_law(laws, len(q), len(drafts))
    if random() * y[picked] < p[picked]:
        return picked
    residual = [max(t - s, 0.0) for t, s in zip(p, y, strict=True)]
    return draw(residual if sum(residual) > 0.0 else p, random)


def score_laws(p: Law, q: Law, n: int) -> Pieces:
    """Return laws of scores for which the selected token has the optimal law; O(V log V)."""
    order = sorted((i for i in range(len(q)) if q[i] > 0.0), key=lambda i: p[i] / q[i])
    own, wanted = [q[i] for i in order], [p[i] for i in order]
    ends = [0.0, *accumulate(own)]
    delta = max(m**n - w for m, w in zip(ends, [0.0, *accumulate(wanted)], strict=True))
    low = min(pooled(delta, wanted, own))
    high = max(pooled(sum(p) - sum(wanted) - delta, wanted[::-1], own[::-1]))
    means = [mean_score(a, b, n) for a, b in pairwise(ends)]
    ratios = [min(max(w / m, low), high) for w, m in zip(wanted, own, strict=True)]
    needs = [m * (r - s) for m, r, s in zip(own, ratios, means, strict=True)]
    laws: Pieces = {i: [] for i in order}
    givers = [at for at in range(len(order)) if needs[at] < -NOTHING]
    for a in range(len(order)):
        while needs[a] > NOTHING and givers:
            b = givers[0]
            moved = min(needs[a], -needs[b])
            part = min(moved / (means[b] - means[a]), own[a], own[b])
            laws[order[a]].append((ends[b], ends[b + 1], part))
            laws[order[b]].append((ends[a], ends[a + 1], part))
            own[a], own[b] = own[a] - part, own[b] - part
            needs[a], needs[b] = needs[a] - moved, needs[b] + moved
            if needs[b] >= -NOTHING:
                givers.pop(0)
    for at, i in enumerate(order):
        laws[i].append((ends[at], ends[at + 1], own[at]))
    return laws


def pooled(more: float, p: Law, q: Law) -> list[float]:
    """Return (more + sum of p) / (sum of q) over the first k tokens, k = 1, ..., len(p)."""
    return [(more + w) / m for w, m in zip(accumulate(p), accumulate(q), strict=True)]


def mean_score(low: float, high: float, n: int) -> float:
    """Return the mean of n u^(n-1) for u uniform on [low, high]."""
    return sum(high**i * low ** (n - 1 - i) for i in range(n))


def picked_law(laws: Pieces, size: int, n: int) -> list[float]:
    """Return the law of the draft with the largest score."""
    return [
        sum(mass * mean_score(low, high, n) for low, high, mass in laws.get(i, ()))
        for i in range(size)
    ]
