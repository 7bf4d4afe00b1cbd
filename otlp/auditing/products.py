"""Products of uniform numbers, each compared with thresholds: U, U V, U V W, ...

Minus the logarithm of a product is a sum of exponential times, whose density is exp(-s) times a
piecewise polynomial, whatever intervals the factors and the shorter products are known to lie in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from otlp.auditing.undecided import Interval


class Product(Interval):
    """What is known of the product of a number, perhaps a product itself, and one number more.

    Parameters
    ----------
    shorter, last : Interval
        Neither is a factor of another product yet.
    """

    __slots__ = ("last", "shorter", "worked_out")

    def __init__(self, shorter: Interval, last: Interval) -> None:
        super().__init__()
        self.worked_out: list[tuple[_Piecewise, Interval]] | None = None
        self.shorter, self.last = shorter, last
        shorter.product = last.product = self


class _Piecewise:
    """A polynomial on each of some intervals, side by side, and 0 before them."""

    def __init__(self, starts: list[float], end: float, pieces: list[np.polynomial.Polynomial]):
        self.starts, self.end, self.pieces = starts, end, pieces

    def __call__(self, s: float) -> float:
        """Value at s; of an integral, also beyond the end."""
        if not self.starts or s <= self.starts[0]:
            return 0.0
        at = int(np.searchsorted(self.starts, min(s, self.end), side="right")) - 1
        return float(self.pieces[at](min(s, self.end) - self.starts[at]))

    def integral(self) -> _Piecewise:
        """The integral from the left."""
        pieces, before = [], 0.0
        for start, end, piece in zip(self.starts, self._ends(), self.pieces, strict=True):
            whole = piece.integ() + before
            pieces.append(whole)
            before = float(whole(end - start)) if math.isfinite(end) else 0.0
        return _Piecewise(self.starts, self.end, pieces)

    def _ends(self) -> list[float]:
        return [*self.starts[1:], self.end] if self.starts else []

    def restricted(self, low: float, high: float) -> _Piecewise:
        """The same within [low, high]."""
        starts, pieces = [], []
        for start, end, piece in zip(self.starts, self._ends(), self.pieces, strict=True):
            if max(start, low) < min(end, high):
                starts.append(max(start, low))
                pieces.append(_shifted(piece, max(start, low) - start))
        return _Piecewise(starts, min(self.end, high), pieces)

    def windowed(self, low: float, high: float) -> _Piecewise:
        """The integral over [s - high, s - low], as a function of s."""
        if not self.starts:
            return self
        total = self.integral()
        ends = [*self.starts, self.end]
        shifts = [d for d in (low, high) if math.isfinite(d)]
        marks = sorted({mark + d for mark in ends for d in shifts if math.isfinite(mark)})
        last = self.end + high
        starts = [mark for mark in marks if mark < last]
        pieces = []
        for start in starts:
            piece = total.at(start - low)
            if math.isfinite(high):
                piece = piece - total.at(start - high)
            pieces.append(piece)
        return _Piecewise(starts, last, pieces)

    def at(self, s: float) -> np.polynomial.Polynomial:
        """The polynomial that holds from s on, as one of the distance from s."""
        # a mark that was shifted there and back may have moved by rounding
        near = 1e-13 * max(1.0, abs(s))
        at = int(np.searchsorted(self.starts, s + near, side="right")) - 1
        if at < 0:
            return np.polynomial.Polynomial([0.0])
        if s + near >= self.end:
            return np.polynomial.Polynomial([self(self.end)])
        return _shifted(self.pieces[at], s - self.starts[at])

    def mass(self, end: float = math.inf) -> float:
        """The integral of exp(-s) times this, up to an end."""
        total = 0.0
        for start, stop, piece in zip(self.starts, self._ends(), self.pieces, strict=True):
            if start < end:
                degrees = np.arange(1, piece.coef.size + 1)
                parts = scipy.special.gammainc(degrees, min(stop, end) - start)
                parts = parts * scipy.special.factorial(degrees - 1)
                total += math.exp(-start) * float(piece.coef @ parts)
        return total


def _shifted(piece: np.polynomial.Polynomial, by: float) -> np.polynomial.Polynomial:
    return piece(np.polynomial.Polynomial([by, 1.0])) if by else piece


def _sums(interval: Interval) -> list[tuple[_Piecewise, Interval]]:
    """Densities of minus the logarithm of each product, the shortest first, up to exp(-s)."""
    low, high = _logs(interval)
    if not isinstance(interval, Product):
        one = np.polynomial.Polynomial([1.0])
        return [
            (_Piecewise([low] if low < high else [], high, [one] if low < high else []), interval)
        ]
    found = _sums(interval.shorter)
    longer = found[-1][0].windowed(*_logs(interval.last)).restricted(low, high)
    return [*found, (longer, interval)]


def _logs(interval: Interval) -> tuple[float, float]:
    return -math.log(interval.high), math.inf if interval.low <= 0.0 else -math.log(interval.low)


def longest(interval: Interval) -> Interval:
    """The longest product that an interval is a factor of."""
    while interval.product is not None:
        interval = interval.product
    return interval


def mass(interval: Interval, low: float, high: float) -> float:
    """Probability of all that is known, with the interval narrowed to [low, high)."""
    if low >= high or high <= 0.0:
        return 0.0
    before = interval.low, interval.high
    interval.low, interval.high = low, high
    try:
        return _sums(longest(interval))[-1][0].mass()
    finally:
        interval.low, interval.high = before


def factor_values(interval: Interval, rng: np.random.Generator) -> dict[Interval, float]:
    """Ordinary numbers for the factors of the longest product, as they are known to lie."""
    whole = longest(interval)
    assert isinstance(whole, Product)
    if whole.worked_out is None:  # by now all that will be known is
        whole.worked_out = _sums(whole)
    sums = whole.worked_out
    values: dict[Interval, float] = {}
    density, _ = sums[-1]
    share = rng.uniform(0.1, 0.9) * density.mass()
    s = _solve(density.mass, share, density.starts[0], density.end)
    for (shorter, _), (_, product) in zip(sums[-2::-1], sums[:0:-1], strict=True):
        assert isinstance(product, Product)
        low, high = _logs(product.last)
        within = shorter.restricted(s - high, s - low).integral()
        t = _solve(within, rng.uniform(0.1, 0.9) * within(s), within.starts[0], min(within.end, s))
        values[product.last] = math.exp(t - s)
        s = t
    values[sums[0][1]] = math.exp(-s)
    return values


def _solve(rising: Callable[[float], float], level: float, low: float, high: float) -> float:
    """Where a rising function reaches a level."""
    if math.isinf(high):
        high = low + 1.0
        while rising(high) < level:
            high += high - low
    return float(scipy.optimize.brentq(lambda s: rising(s) - level, low, high))
