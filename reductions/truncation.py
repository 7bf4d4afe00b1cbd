"""Which tokens get a variable of their own in the convex systems.

The paper keeps the most likely tokens and leaves the tuples with any other token to chance
(section 6.3); the mass of those tuples bounds the error.  Lumps leave no tuple out: tokens of
nearly the same ratio w/q of wanted to drafted mass share a variable, and one of their drafts is
taken at random, which splits the lump's mass in proportion to q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.numerics.compiled import compiled
from otlp.numerics.inclusion import inclusion_probability

MOST_CUTS = 2**40
"""Finer cuts of the ratio than this would only split hairs of rounding."""


def outer_truncation(draft: FloatArray, n: int, subset: Mask, tau: float) -> tuple[IntArray, float]:
    """Smallest T outside H* with epsilon_T = 1 - q(H* + T)^n at most tau (Eq. 13, Algorithm 1).

    Parameters
    ----------
    draft : ndarray, shape (V,)
        q.
    n : int
        Number of drafts.
    subset : ndarray of bool, shape (V,)
        H*.
    tau : float
        Error threshold.

    Returns
    -------
    tokens : ndarray of int64
        T, by q descending.
    error : float
        epsilon_T: the mass of the tuples that leave H* and T.

    Notes
    -----
    O(V log V).
    """
    return _truncate(draft, n, ~subset, 1.0, tau)


def inner_truncation(draft: FloatArray, n: int, subset: Mask, tau: float) -> tuple[IntArray, float]:
    """Smallest T inside H* with gamma_T = q(H*)^n - q(T)^n at most tau (Eq. 16, Algorithm 1).

    Parameters and returns are those of `outer_truncation`.
    """
    return _truncate(draft, n, subset, float(draft[subset].sum()), tau)


def _truncate(
    draft: FloatArray, n: int, candidates: Mask, total: float, tau: float
) -> tuple[IntArray, float]:
    tokens = np.flatnonzero(candidates & (draft > 0.0))
    tokens = tokens[np.argsort(-draft[tokens], kind="stable")].astype(np.int64)
    if tokens.size == 0:
        return tokens, 0.0
    # left_out[m] = mass of all but the first m; total^n - (total - left_out)^n without cancelling
    left_out = np.append(np.cumsum(draft[tokens][::-1])[::-1], 0.0)
    error = total**n * inclusion_probability(left_out / total, n)
    size = int(np.flatnonzero(error <= tau)[0])
    return tokens[:size], float(error[size])


@dataclass(frozen=True, eq=False)
class Lumps:
    """A partition of tokens into lumps, one variable each.

    Attributes
    ----------
    labels : ndarray, shape (V,), int64
        The lump of each token; -1 for tokens without a variable, which are never accepted.
    draft, wanted : ndarray, shape (G,)
        Draft probability and wanted mass of each lump.
    mismatch : float
        L1 distance between the wanted masses and those that a lump's mass split by q gives.
    """

    labels: IntArray
    draft: FloatArray
    wanted: FloatArray
    mismatch: float

    def __len__(self) -> int:
        """Return the number of lumps G."""
        return self.draft.size

    def raised(self, draft: FloatArray, wanted: FloatArray) -> Lumps:
        """The same lumps, each with all that is wanted of it, split by q, enough for every token.

        Then a mismatch is an excess, and costs nothing where it is scaled down.
        """
        most = _largest_ratio(self.labels, draft, wanted, len(self))
        raised = np.maximum(most * self.draft, self.wanted)
        return Lumps(self.labels, self.draft, raised, self.mismatch)


def singletons(draft: FloatArray, wanted: FloatArray, tokens: IntArray) -> Lumps:
    """Every token its own lump; no mismatch."""
    labels = np.full(draft.size, -1, dtype=np.int64)
    labels[tokens] = np.arange(tokens.size)
    return Lumps(labels, draft[tokens], wanted[tokens], 0.0)


def lump(
    draft: FloatArray, wanted: FloatArray, tokens: IntArray, tolerance: float, limit: int
) -> Lumps:
    """Lump tokens by their ratio w/q, with few lumps and a mismatch of at most `tolerance`.

    Parameters
    ----------
    draft, wanted : ndarray, shape (V,)
        q and w.
    tokens : ndarray of int64
        The tokens to lump, of positive q, by w/q ascending; rounding may disturb the order.
    tolerance : float
        Mismatch to stay below.
    limit : int
        Most lumps; with that many the mismatch may stay above the tolerance.

    Returns
    -------
    Lumps

    Notes
    -----
    The ratio is cut into quantiles of sqrt(q d(w/q)), the cuts that are best for many lumps.
    O(V) a trial; a handful of trials.
    """
    q, w = draft[tokens], wanted[tokens]
    position = _position(q, w)

    def cut(count: int) -> _Cut:
        return _Cut(*_cut(position, q, w, float(count)))

    low, high = 0, min(8, limit)
    lumps = cut(high)
    while lumps.mismatch > tolerance:
        # the mismatch falls as 1 / count
        count = max(high + 1, int(high * lumps.mismatch / tolerance))
        more = cut(count)
        while len(more.first) > limit and count > high + 1:
            count = (high + count) // 2
            more = cut(count)
        if len(more.first) > limit or count > MOST_CUTS:
            return _lumps(draft, wanted, tokens, lumps)
        low, high, lumps = high, count, more
    while high > 1.1 * low + 1.0:
        middle = (low + high) // 2
        fewer = cut(middle)
        if fewer.mismatch <= tolerance:
            high, lumps = middle, fewer
        else:
            low = middle
    return _lumps(draft, wanted, tokens, lumps)


class _Cut(NamedTuple):
    """Where each lump begins among the tokens in order, and the mismatch."""

    first: IntArray
    mismatch: float


@compiled(error_model="numpy")
def _largest_ratio(
    labels: IntArray, draft: FloatArray, wanted: FloatArray, count: int
) -> FloatArray:
    """Largest w/q of each lump, shape (G,)."""
    most = np.zeros(count)
    for x in range(labels.size):
        if labels[x] >= 0:
            most[labels[x]] = max(most[labels[x]], wanted[x] / draft[x])
    return most


@compiled(error_model="numpy")
def _position(q: FloatArray, w: FloatArray) -> FloatArray:
    """Part of the sum of sqrt(q d(w/q)) up to each token, just below 1 at the last."""
    position = np.zeros(q.size)
    ratio = w[0] / q[0]
    for k in range(1, q.size):
        rise = max(w[k] / q[k] - ratio, 0.0)
        position[k] = position[k - 1] + np.sqrt(rise * 0.5 * (q[k] + q[k - 1]))
        ratio += rise
    position /= max(position[-1] * (1.0 + 1e-12), 5e-324)
    return position


@compiled(error_model="numpy")
def _cut(
    position: FloatArray, q: FloatArray, w: FloatArray, count: float
) -> tuple[IntArray, float]:
    """Cut tokens in order at every 1 / count of the position."""
    size = position.size
    first = np.empty(size, np.int64)
    lumps, mismatch, begin = 0, 0.0, 0
    while begin < size:
        first[lumps] = begin
        lumps += 1
        level = np.floor(position[begin] * count)
        mass, goal, end = 0.0, 0.0, begin
        while end < size and np.floor(position[end] * count) == level:
            mass += q[end]
            goal += w[end]
            end += 1
        for k in range(begin, end):
            mismatch += abs(w[k] - (goal / mass) * q[k])
        begin = end
    return first[:lumps].copy(), mismatch


def _lumps(draft: FloatArray, wanted: FloatArray, order: IntArray, cut: _Cut) -> Lumps:
    return Lumps(*_merged(draft, wanted, order, cut.first), cut.mismatch)


@compiled
def _merged(
    draft: FloatArray, wanted: FloatArray, order: IntArray, first: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Lump of each token, and q and w of each lump, where lumps are cut off an order."""
    labels = np.full(draft.size, -1, np.int64)
    mass, goal = np.zeros((2, first.size))
    for lump in range(first.size):
        last = first[lump + 1] if lump + 1 < first.size else order.size
        for k in range(first[lump], last):
            labels[order[k]] = lump
            mass[lump] += draft[order[k]]
            goal[lump] += wanted[order[k]]
    return labels, mass, goal
