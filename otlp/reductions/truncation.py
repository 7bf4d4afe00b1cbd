"""Assignment of tokens to the variables of the convex systems.

The paper keeps the most likely tokens and does not optimise the tuples with any other token
(section 6.3); the mass of these tuples bounds the error.  Buckets leave no tuple out: tokens with
nearly the same ratio w/q of wanted to drafted mass share a variable, and one of their drafts is
selected at random, which splits the bucket's mass in proportion to q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.numerics.compiled import REASSOCIATE, compiled
from otlp.numerics.inclusion import inclusion_probability

MOST_CUTS = 2**40
"""Maximum number of cuts of the ratio; finer cuts would separate rounding errors."""


def truncation(
    draft: FloatArray, n: int, accepting: Mask, ignored: float, tau: float
) -> tuple[IntArray, float]:
    """Return the smallest set T of accepted tokens that leaves out tuples of mass at most tau.

    Parameters
    ----------
    draft : ndarray, shape (V,)
        q.
    n : int
        Number of drafts.
    accepting : ndarray of bool, shape (V,)
        Tokens that the system accepts: the tokens outside H*, or the tokens inside.
    ignored : float
        Probability of the other tokens that its tuples may contain: q(H*), or 0.
    tau : float
        Error threshold.

    Returns
    -------
    tokens : ndarray of int64
        T, by q descending.
    error : float
        Mass of the system's tuples that leave T: 1 - q(H* + T)^n for the outer system, epsilon_T of
        Eq. 13; q(H*)^n - q(T)^n for the inner system, gamma_T of Eq. 16 (Algorithm 1).

    Notes
    -----
    O(V log V).
    """
    total = ignored + float(draft[accepting].sum())
    tokens = np.flatnonzero(accepting & (draft > 0.0))
    tokens = tokens[np.argsort(-draft[tokens], kind="stable")].astype(np.int64)
    if tokens.size == 0:
        return tokens, 0.0
    # left_out[m] is the mass of all but the first m tokens; the error is
    # total^n - (total - left_out)^n, without cancellation.
    left_out = np.append(np.cumsum(draft[tokens][::-1])[::-1], 0.0)
    error = total**n * inclusion_probability(left_out / total, n)
    size = int(np.flatnonzero(error <= tau)[0])
    return tokens[:size], float(error[size])


@dataclass(frozen=True, eq=False)
class Buckets:
    """A partition of tokens into buckets, with one variable per bucket.

    Attributes
    ----------
    labels : ndarray, shape (V,), int64
        Bucket of each token; -1 for tokens without a variable, which are never accepted.
    draft, wanted : ndarray, shape (G,)
        Draft probability and wanted mass of each bucket.
    most : ndarray, shape (G,)
        Largest w/q of the tokens of each bucket, up to rounding.
    mismatch : float
        L1 distance between the wanted masses and the masses of the buckets split by q.
    """

    labels: IntArray
    draft: FloatArray
    wanted: FloatArray
    most: FloatArray
    mismatch: float

    def __len__(self) -> int:
        """Return the number of buckets G."""
        return self.draft.size

    def raised(self) -> Buckets:
        """Return the buckets with wanted masses raised so that the split by q suffices everywhere.

        A mismatch is then an excess, and scaling it down costs nothing.
        """
        return replace(self, wanted=np.maximum(self.most * self.draft, self.wanted))


def singletons(draft: FloatArray, wanted: FloatArray, tokens: IntArray) -> Buckets:
    """Return one bucket per token, without mismatch."""
    labels = np.full(draft.size, -1, dtype=np.int64)
    labels[tokens] = np.arange(tokens.size)
    q, w = draft[tokens], wanted[tokens]
    return Buckets(labels, q, w, w / q, 0.0)


def into_buckets(
    draft: FloatArray, wanted: FloatArray, tokens: IntArray, tolerance: float, limit: int
) -> Buckets:
    """Put tokens into few buckets by their ratio w/q, with a mismatch of at most `tolerance`.

    Parameters
    ----------
    draft, wanted : ndarray, shape (V,)
        q and w.
    tokens : ndarray of int64
        Tokens with positive q, by w/q ascending; rounding may disturb the order.
    tolerance : float
        Upper limit of the mismatch, above 0.
    limit : int
        Maximum number of buckets; at this number the mismatch may exceed the tolerance.

    Returns
    -------
    Buckets

    Notes
    -----
    The ratio is cut into quantiles of sqrt(q d(w/q)), the optimal cuts for many buckets.
    O(V) per trial; a handful of trials.
    """
    labels = np.full(draft.size, -1, dtype=np.int64)
    sums = _into_buckets(draft[tokens], wanted[tokens], tokens, labels, tolerance, limit)
    return Buckets(labels, *sums)


@compiled
def _into_buckets(
    q: FloatArray, w: FloatArray, order: IntArray, labels: IntArray, tolerance: float, limit: int
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Write the labels of tokens in order; return q, w, largest w/q of buckets, and mismatch."""
    first, mismatch = _starts(q, w, tolerance, limit)
    mass, goal, most = np.empty(first.size), np.empty(first.size), np.empty(first.size)
    for bucket in range(first.size):
        begin, end = first[bucket], first[bucket + 1] if bucket + 1 < first.size else order.size
        mass[bucket], goal[bucket] = _sums(q[begin:end], w[begin:end])
        most[bucket] = w[end - 1] / q[end - 1]
        for k in range(begin, end):
            labels[order[k]] = bucket
    return mass, goal, most, mismatch


@compiled(inline="always")
def _starts(q: FloatArray, w: FloatArray, tolerance: float, limit: int) -> tuple[IntArray, float]:
    """Return the start of each bucket among the tokens in order, and the mismatch."""
    first, mismatch = np.empty(min(q.size, 1), np.int64), _mismatch(q, w)
    if q.size > 0:
        first[0] = 0
    if mismatch <= tolerance:
        return first, mismatch
    position, low, high = _position(q, w), 0, 1
    while mismatch > tolerance:
        # The mismatch decreases as 1 / count.
        count = max(high + 1, int(min(high * mismatch / tolerance, 2.0 * MOST_CUTS)))
        more, rest = _cut(position, q, w, count)
        while more.size > limit and count > high + 1:
            count = (high + count) // 2
            more, rest = _cut(position, q, w, count)
        if more.size > limit or count > MOST_CUTS:
            return first, mismatch
        low, high, first, mismatch = high, count, more, rest
    while high > 1.1 * low + 1.0:
        middle = (low + high) // 2
        fewer, rest = _cut(position, q, w, middle)
        if rest <= tolerance:
            high, first, mismatch = middle, fewer, rest
        else:
            low = middle
    return first, mismatch


@compiled(inline="always")
def _position(q: FloatArray, w: FloatArray) -> FloatArray:
    """Return the fraction of the sum of sqrt(q d(w/q)) up to each token; below 1 at the last."""
    position = np.empty(q.size)
    position[0] = 0.0
    for k in range(1, q.size):
        rise = max(w[k] / q[k] - w[k - 1] / q[k - 1], 0.0)
        position[k] = position[k - 1] + np.sqrt(rise * 0.5 * (q[k] + q[k - 1]))
    whole = max(position[-1] * (1.0 + 1e-12), 5e-324)
    for k in range(q.size):
        position[k] /= whole
    return position


@compiled
def _cut(position: FloatArray, q: FloatArray, w: FloatArray, count: int) -> tuple[IntArray, float]:
    """Cut the tokens in order at every multiple of 1 / count of the position."""
    size = position.size
    first = np.empty(min(size, count), np.int64)
    buckets, mismatch, begin = 0, 0.0, 0
    while begin < size:
        first[buckets] = begin
        buckets += 1
        level = np.floor(position[begin] * count)
        end, last = begin + 1, size
        while end < last:
            middle = (end + last) // 2
            if np.floor(position[middle] * count) == level:
                end = middle + 1
            else:
                last = middle
        mismatch += _mismatch(q[begin:end], w[begin:end])
        begin = end
    return first[:buckets], mismatch


@compiled(fastmath=REASSOCIATE, inline="always")
def _sums(q: FloatArray, w: FloatArray) -> tuple[float, float]:
    mass = goal = 0.0
    for k in range(q.size):
        mass += q[k]
        goal += w[k]
    return mass, goal


@compiled(fastmath=REASSOCIATE)
def _mismatch(q: FloatArray, w: FloatArray) -> float:
    """Return the L1 distance between w and its sum split in proportion to q."""
    mass, goal = _sums(q, w)
    ratio, mismatch = goal / mass, 0.0
    for k in range(q.size):
        mismatch += abs(w[k] - ratio * q[k])
    return mismatch
