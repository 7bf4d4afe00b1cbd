"""Bins of the ratio p/q: the order of the tokens by p/q, as far as an optimum depends on it.

A bin is an interval of ratios whose floating-point numbers begin with the same bits: the exponent
and the first bits of the mantissa.  One pass adds p and q up by bin, and the bins are ordered as
the ratios are.  A bin is *opened*, and its tokens are sorted, only if the sums of the bin do not
determine the result.  Closed bins and opened tokens are *items*: the result of a sort of all
tokens, with the tokens of a closed bin as one item.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.numerics.ascending import ascending
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope
from otlp.numerics.prefix_sums import accumulate

LEAST_EXPONENT = -32
"""Exponent of two below which all ratios are in the first bin."""

MOST_BITS = 7
"""Maximum number of mantissa bits: 128 bins per octave."""

SPARED_BITS = 2
"""Difference between half the number of binary digits of V and the number of mantissa bits, which
is at most `MOST_BITS`; few tokens would not fill many bins."""

MOST_RATIO = 2.0**960
"""Upper limit on ratios, so that products with ratios are finite."""

ROUNDING = 2.0**-49
"""Least margin over the best prefix for which a bin is opened; smaller margins are rounding."""


class RatioBins(NamedTuple):
    """Sums of p and q by bins of p/q.

    Attributes
    ----------
    bits : int
        Number of mantissa bits that the ratios of a bin share.
    place : ndarray, shape (V,), uint16
        Bin of each token; undefined if q = 0.
    p, q : ndarray, shape (K,)
        Masses of each bin; q is zero only for an empty bin.
    p_sum, q_sum : ndarray, shape (K + 1,)
        Prefix sums of p and q, starting at 0.
    """

    bits: int
    place: npt.NDArray[np.uint16]
    p: FloatArray
    q: FloatArray
    p_sum: FloatArray
    q_sum: FloatArray


class Opened(NamedTuple):
    """Bins, and the tokens of the opened bins.

    Attributes
    ----------
    bits : int
    p, q : ndarray, shape (K,)
        See `RatioBins`.
    opened : ndarray of bool, shape (K,)
    size : int
        Number m of tokens in opened bins that can be drafted.
    tokens : ndarray, shape (V,), int64
        The first m entries are these tokens; the others are undefined.
    ratios : ndarray, shape (V,)
        p/q of these tokens.
    """

    bits: int
    p: FloatArray
    q: FloatArray
    opened: Mask
    size: int
    tokens: IntArray
    ratios: FloatArray


def bits_for(vocab_size: int) -> int:
    """Return the number of mantissa bits for a vocabulary of `vocab_size` tokens."""
    return min(max(vocab_size.bit_length() // 2 - SPARED_BITS, 0), MOST_BITS)


@compiled
def ratio_bins(target: FloatArray, draft: FloatArray, n: int, bits: int) -> RatioBins:
    """Add p and q up by bins of p/q, with compensated rounding; O(V).

    Parameters
    ----------
    target, draft : ndarray, shape (V,)
        p and q.
    n : int
        Number of drafts.  Ratios of n or more are in the last bin, because no level reaches them.
    bits : int
        Number of mantissa bits that the ratios of a bin share; see `bits_for`.
    """
    octaves = -LEAST_EXPONENT
    while (n - 1) >> (octaves + LEAST_EXPONENT) > 0:
        octaves += 1
    last = octaves << bits
    place = np.empty(target.size, np.uint16)
    for i in range(target.size):
        place[i] = bin_of(target[i] / draft[i], bits, last)
    sums = np.empty((last + 1, 4))  # Each signature of np.zeros takes 0.1 s to compile.
    for b in range(last + 1):
        for column in range(4):
            sums[b, column] = 0.0
    for i in range(target.size):
        if draft[i] > 0.0:
            b, p, q = place[i], target[i], draft[i]
            p_old, q_old = sums[b, 0], sums[b, 1]
            p_new, q_new = p_old + p, q_old + q
            sums[b, 0], sums[b, 1] = p_new, q_new
            sums[b, 2] += (max(p_old, p) - p_new) + min(p_old, p)
            sums[b, 3] += (max(q_old, q) - q_new) + min(q_old, q)
    p_mass, q_mass = np.empty(last + 1), np.empty(last + 1)
    p_sum, q_sum = np.empty(last + 2), np.empty(last + 2)
    p_sum[0], q_sum[0] = 0.0, 0.0
    for b in range(last + 1):  # Assigning slices would take a second to compile.
        p_mass[b], q_mass[b] = sums[b, 0] + sums[b, 2], sums[b, 1] + sums[b, 3]
        p_sum[b + 1], q_sum[b + 1] = p_mass[b], q_mass[b]
    accumulate(p_sum)
    accumulate(q_sum)
    return RatioBins(bits, place, p_mass, q_mass, p_sum, q_sum)


@compiled
def bin_of(ratio: float, bits: int, last: int) -> int:
    """Return the bin of a ratio: its leading bits, clipped to the first and the last bin."""
    lead = int(np.float64(ratio).view(np.int64) >> (52 - bits))
    place = lead - ((1023 + LEAST_EXPONENT) << bits)
    if place < 0:  # `min` and `max` of integers would be two more functions to compile.
        return 0
    return place if place < last else last


@compiled
def least_of(place: int, bits: int) -> float:
    """Return the least ratio of a bin."""
    if place == 0:
        return 0.0
    lead = np.int64(place + ((1023 + LEAST_EXPONENT) << bits))
    return np.int64(lead << (52 - bits)).view(np.float64)


@compiled
def power(base: float, n: int) -> float:
    """Return the n-th power, by squaring."""
    result = 1.0
    while n > 0:
        if n & 1:
            result *= base
        base *= base
        n >>= 1
    return result


@compiled
def open_for_loss(target: FloatArray, draft: FloatArray, n: int, bits: int) -> Opened:
    """Open the bins in which a prefix may have a larger Q^n - P than at bin borders; O(V)."""
    bins = ratio_bins(target, draft, n, bits)
    opened = np.empty(bins.q.size, np.bool_)
    _mark_for_loss(bins, n, opened)
    return _opened(target, draft, bins, opened)


@compiled
def open_for_levels(target: FloatArray, draft: FloatArray, n: int, bits: int) -> Opened:
    """Open the bins of `open_for_loss`, the bins of the levels c and C, and mixed bins in between.

    A bin between the levels is mixed if its ratios may lie on both sides of the mean of n u^(n-1)
    over the bin's cell.  O(V).
    """
    bins = ratio_bins(target, draft, n, bits)
    opened = np.empty(bins.q.size, np.bool_)
    _mark_for_levels(bins, n, opened)
    return _opened(target, draft, bins, opened)


@compiled(inline="always")
def _opened(target: FloatArray, draft: FloatArray, bins: RatioBins, opened: Mask) -> Opened:
    """Collect the tokens of opened bins, and their ratios."""
    # Most of this memory is never touched.
    tokens, ratios = np.empty(target.size, np.int64), np.empty(target.size)
    count = 0
    for i in range(target.size):
        if opened[bins.place[i]] and draft[i] > 0.0:
            tokens[count] = i
            ratios[count] = target[i] / draft[i]
            count += 1
    return Opened(bins.bits, bins.p, bins.q, opened, count, tokens, ratios)


@compiled(inline="always")
def _mark_for_loss(bins: RatioBins, n: int, opened: Mask) -> tuple[float, float]:
    """Write whether `open_for_loss` opens each bin.

    A prefix that ends inside a bin, with the further mass x, has Q^n - P of at most (Q + x)^n - P -
    x times the bin's least ratio.  This bound is convex in x, so its maximum is at x = 0 or at
    x = the mass of the bin.

    Returns
    -------
    least, most : float
        Bounds on the maximum over all prefixes; equal if no bin is opened.
    """
    bits, _, _, q, p_sum, q_sum = bins
    least = 0.0
    for b in range(q.size):
        least = max(least, power(q_sum[b + 1], n) - p_sum[b + 1])
    most = least
    for b in range(q.size):
        reach = power(q_sum[b + 1], n) - p_sum[b] - least_of(b, bits) * q[b]
        opened[b] = q[b] > 0.0 and reach > least + ROUNDING
        if opened[b]:
            most = max(most, reach)
    return least, most


@compiled(inline="always")
def _mark_for_levels(bins: RatioBins, n: int, opened: Mask) -> None:
    """Write whether `open_for_levels` opens each bin.

    At the levels sum (c q - p)^+ = sum (p - C q)^+ = delta.  The sums of bins determine the first
    sum at the upper end of a bin, and the second at the lower end.
    """
    least, most = _mark_for_loss(bins, n, opened)
    if most == 0.0:  # There are no levels, and all bins are in between.
        least = most = -np.inf
    bits, _, _, q, p_sum, q_sum = bins
    last, whole = q.size - 1, q_sum[-1]
    for b in range(q.size):
        start, end = least_of(b, bits), least_of(b + 1, bits)
        above = 1.0 - p_sum[b] - start * (whole - q_sum[b])
        below_end = end * q_sum[b + 1] - p_sum[b + 1]
        if q[b] == 0.0 or above < least or (b < last and below_end < least):
            continue
        below = start * q_sum[b] - p_sum[b]
        above_end = 1.0 - p_sum[b + 1] - end * (whole - q_sum[b + 1])
        mean = power_slope(q_sum[b], q_sum[b + 1], n)
        opened[b] |= below < most or above_end < most or start < mean < end or b == last


@compiled(inline="always")
def list_items(
    target: FloatArray, draft: FloatArray, bins: Opened, order: IntArray
) -> tuple[int, FloatArray, FloatArray, FloatArray, Mask]:
    """List items by p/q ascending: closed bins, and opened tokens; equal ratios are one item.

    Parameters
    ----------
    order : ndarray, shape (m,)
        Order of the opened tokens by p/q ascending.

    Returns
    -------
    size : int
        Number M of items.  The arrays may be longer, because slices take long to compile.
    start : ndarray, shape (M,)
        Least ratio that the item can hold: the lower end of a closed bin, or the tokens' ratio.
    p, q : ndarray, shape (M,)
        Masses.
    closed : ndarray of bool, shape (M,)
        Whether the item is a closed bin, whose tokens may have different ratios.
    """
    bits, p, q, opened, count, tokens, ratios = bins
    most = q.size + count
    start, closed = np.empty(most), np.empty(most, np.bool_)
    p_mass, q_mass = np.empty(most), np.empty(most)
    size, at = 0, 0
    for b in range(q.size):
        if not opened[b]:
            if q[b] > 0.0:
                start[size], closed[size] = least_of(b, bits), True
                p_mass[size], q_mass[size] = p[b], q[b]
                size += 1
            continue
        first = size
        while at < count:
            i, ratio = tokens[order[at]], ratios[order[at]]
            if bin_of(ratio, bits, q.size - 1) != b:
                break
            ratio = min(ratio, MOST_RATIO)
            if size > first and ratio == start[size - 1]:
                p_mass[size - 1] += target[i]
                q_mass[size - 1] += draft[i]
            else:
                start[size], closed[size] = ratio, False
                p_mass[size], q_mass[size] = target[i], draft[i]
                size += 1
            at += 1
    return size, start, p_mass, q_mass, closed


@compiled(inline="always")
def best_prefix(q_sum: FloatArray, p_sum: FloatArray, n: int) -> tuple[float, int]:
    """Return the maximum of Q^n - P over prefixes, at least 0, and the length of the prefix."""
    delta, size = 0.0, 0
    for k in range(p_sum.size):
        value = power(q_sum[k + 1], n) - p_sum[k]
        if value > delta:
            delta, size = value, k + 1
    return delta, size


@compiled(inline="always")
def ratios_below(target: FloatArray, draft: FloatArray, cut: float) -> Mask:
    """Return a mask of the tokens that can be drafted and have p/q below `cut`; shape (V,)."""
    below = np.empty(target.size, np.bool_)
    for i in range(target.size):
        below[i] = (draft[i] > 0.0) & (target[i] / draft[i] < cut)
    return below


def best_prefix_subset(target: FloatArray, draft: FloatArray, n: int) -> Mask:
    """Return H*, shape (V,): the tokens of least p/q that maximise q(H)^n - p(H); O(V).

    Only the tokens of bins whose bound beats the best prefix of bins are sorted.
    """
    bins = open_for_loss(target, draft, n, bits_for(target.size))
    return _best_subset(target, draft, bins, ascending(bins.ratios[: bins.size]), n)


@compiled
def _best_subset(
    target: FloatArray, draft: FloatArray, bins: Opened, order: IntArray, n: int
) -> Mask:
    size, start, p, q, _ = list_items(target, draft, bins, order)
    p_sum, q_sum = np.empty(size), np.empty(size + 1)
    q_sum[0] = 0.0
    for k in range(size):
        p_sum[k], q_sum[k + 1] = p[k], q[k]
    accumulate(p_sum)
    accumulate(q_sum)
    _, length = best_prefix(q_sum, p_sum, n)
    return ratios_below(target, draft, start[length] if length < size else np.inf)
