"""Draws without replacement whose tokens rank themselves at random: which drafted one is best.

A token is one of the first n clocks to ring, at rates q (`otlp.WithoutReplacement`), and draws its
rank from a law of its own.  Raise the bar over all ranks from the lowest: each step lets a share
of one token below the bar, and that token is the best with the chance that it lies on the step and
is drafted, while the other drafted tokens lie below.  At a fixed time all of these are products
over tokens, kept as their first n coefficients; a step divides its token's factor out, changes
the factor, and multiplies it in again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.numerics.compiled import compiled
from otlp.timing import checkpoint

LITTLE = 0.5
"""Up to here exp(x) - 1 is a series, which fills the vectors."""

NEGLIGIBLE = 1e-17
"""Smaller terms of the series, as parts of its sum, are left out."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """The clocks at the nodes of the integral over time, in B blocks of W nodes.

    Attributes
    ----------
    draft : ndarray, shape (V,)
        The rates q.
    head : ndarray, shape (V,), int64
        Number of each token among the heads, or -1.  Heads are so likely that dividing their
        factors out would lose digits; these are multiplied anew.
    rung : ndarray, shape (B, V, W)
        Odds that the clock has rung; for heads the probability.
    silent : ndarray, shape (B, H, W)
        Probability that a head's clock has not rung.
    start : ndarray, shape (B, W)
        Weights of the nodes, times the probability that no clock but the heads' has rung.
    """

    draft: FloatArray
    head: IntArray
    rung: FloatArray
    silent: FloatArray
    start: FloatArray

    @classmethod
    def at(cls, draft: FloatArray, n: int, times: FloatArray, weights: FloatArray) -> Clocks:
        """Prepare the clocks at the nodes, shape (B, W); O(V) exponentials a node."""
        order = np.argsort(-draft, kind="stable")
        left = np.cumsum(draft[order][::-1])[::-1]
        light = (n * draft[order] <= left) | (draft[order] * times[-1, -1] <= LITTLE)
        count = int(np.argmax(light)) if light.any() else draft.size
        head = np.full(draft.size, -1, dtype=np.int64)
        head[order[:count]] = np.arange(count)
        tail = float(left[count]) if count < draft.size else 0.0
        rung = np.empty((len(times), draft.size, times.shape[1]))
        for rows, block in zip(rung, times, strict=True):
            checkpoint()
            _ring(draft, head, block, rows)
        silent = np.exp(-draft[order[:count], None] * times[:, None])
        return cls(draft, head, rung, silent, weights * np.exp(-tail * times))

    def chances(self, n: int, tokens: IntArray, shares: FloatArray) -> FloatArray:
        """Probability that the step's token is the best if it has that rank; O(n) a step and node.

        Parameters
        ----------
        n : int
            Number of drafts, at least 2.
        tokens : ndarray, shape (M,)
            Whose rank each step may be, from the lowest rank to the best.
        shares : ndarray, shape (M,)
            The probability of that rank; those of a token sum to one.

        Returns
        -------
        ndarray, shape (M,)
        """
        chances = np.zeros(tokens.size)
        for rung, silent, start in zip(self.rung, self.silent, self.start, strict=True):
            checkpoint()
            _add_chances(self.draft, self.head, rung, silent, start, n, tokens, shares, chances)
        return chances


@compiled
def _ring(draft: FloatArray, head: IntArray, times: FloatArray, rung: FloatArray) -> None:
    for token in range(draft.size):
        rate = draft[token]
        if head[token] >= 0:
            for k in range(times.size):
                rung[token, k] = -np.expm1(-rate * times[k])
        elif rate * times[-1] < LITTLE:
            terms, rest = 1, 1.0
            while rest > NEGLIGIBLE:
                terms += 1
                rest *= rate * times[-1] / terms
            for k in range(times.size):
                rung[token, k] = 1.0
            for term in range(terms, 1, -1):
                part = rate / term
                for k in range(times.size):
                    rung[token, k] = 1.0 + part * times[k] * rung[token, k]
            for k in range(times.size):
                rung[token, k] *= rate * times[k]
        else:
            for k in range(times.size):
                rung[token, k] = np.expm1(rate * times[k])


@compiled(fastmath={"reassoc", "nnan", "nsz", "contract"})
def _add_chances(
    draft: FloatArray,
    head: IntArray,
    rung: FloatArray,
    silent: FloatArray,
    start: FloatArray,
    n: int,
    tokens: IntArray,
    shares: FloatArray,
    chances: FloatArray,
) -> None:
    """Integrate over the time when the n-th clock rings; see `Clocks.chances`.

    Row m of `count` is the chance that m clocks of the tail have rung, all below the bar, and of
    `rate` the rate at which one more rings; the heads have the same, and all heads but `current`.
    A step looks at them without its token, from the first row to the last.
    """
    width, heads = start.size, silent.shape[0]
    below = np.zeros(draft.size)
    names = np.zeros(heads, np.int64)
    for token in range(draft.size):
        if head[token] >= 0:
            names[head[token]] = token
    count, rate = np.zeros((n, width)), np.zeros((n, width))
    head_count, head_rate = np.zeros((n, width)), np.zeros((n, width))
    rest_count, rest_rate = np.zeros((n, width)), np.zeros((n, width))
    same, more = np.zeros(width), np.zeros(width)
    count[0] = start
    head_count[0] = 1.0
    for h in range(heads):
        _multiply(head_count, head_rate, silent[h], rung[names[h]], draft[names[h]], 0.0)
    current = -1
    for step in range(tokens.size):
        token = tokens[step]
        share, own, reached = shares[step], draft[token], below[token]
        below[token] = reached + share
        total, rise = 0.0, share * own
        if head[token] >= 0:
            if token != current:
                rest_count[:], rest_rate[:] = 0.0, 0.0
                rest_count[0] = 1.0
                for h in range(heads):
                    if names[h] != token:
                        name = names[h]
                        _multiply(
                            rest_count, rest_rate, silent[h], rung[name], draft[name], below[name]
                        )
                current = token
            for m in range(n):
                for k in range(width):
                    total += own * silent[head[token], k] * count[n - 1 - m, k] * rest_count[m, k]
            for m in range(n - 1):
                for k in range(width):
                    total += rung[token, k] * (
                        rate[n - 2 - m, k] * rest_count[m, k]
                        + count[n - 2 - m, k] * rest_rate[m, k]
                    )
            head_count[:], head_rate[:] = rest_count, rest_rate
            _multiply(head_count, head_rate, silent[head[token]], rung[token], own, below[token])
        else:
            flow = reached * own
            for k in range(width):
                same[k] = count[0, k]
                more[k] = rate[0, k] - flow * same[k]
                rate[0, k] += rise * same[k]
            for m in range(1, n):
                if heads > 0:
                    for k in range(width):
                        total += (
                            own * same[k] * head_count[n - m, k]
                            + rung[token, k] * more[k] * head_count[n - 1 - m, k]
                            + rung[token, k] * same[k] * head_rate[n - 1 - m, k]
                        )
                elif m == n - 1:
                    for k in range(width):
                        total += rung[token, k] * more[k]
                for k in range(width):
                    odds, one, two = rung[token, k], same[k], more[k]
                    lower, upper = reached * odds, share * odds
                    here = count[m, k] - lower * one
                    count[m, k] += upper * one
                    same[k] = here
                    more[k] = rate[m, k] - lower * two - flow * here
                    rate[m, k] += upper * two + rise * here
            for k in range(width):
                total += own * same[k] * head_count[0, k]
        chances[step] += total


@compiled
def _multiply(
    count: FloatArray,
    rate: FloatArray,
    silent: FloatArray,
    rung: FloatArray,
    own: float,
    below: float,
) -> None:
    """Multiply a head's factor in, of whose ranks the share `below` lies below the bar."""
    for m in range(count.shape[0] - 1, 0, -1):
        for k in range(silent.size):
            no, yes = silent[k], below * rung[k]
            rate[m, k] = no * (rate[m, k] + below * own * count[m, k]) + yes * rate[m - 1, k]
            count[m, k] = no * count[m, k] + yes * count[m - 1, k]
    for k in range(silent.size):
        rate[0, k] = silent[k] * (rate[0, k] + below * own * count[0, k])
        count[0, k] *= silent[k]
