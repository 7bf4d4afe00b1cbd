"""A uniform number that takes a side only when it is compared with a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

__all__ = ["Interval", "UndecidedNumber"]


class Interval:
    """What is known of a uniform number: it lies in [low, high)."""

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.low, self.high = 0.0, 1.0


class _Decider(Protocol):
    """Decides comparisons, or gives up."""

    def below(self, interval: Interval, threshold: float) -> bool: ...

    def give_up(self, reason: str) -> NoReturn: ...


_REAL = (int, float, np.floating, np.integer)


def _same(value: float) -> float:
    return value


class UndecidedNumber:
    """A uniform number that is not decided yet, or an increasing or decreasing function of one.

    It has no numpy protocol of its own: numpy treats it as an object, compares it element by
    element, and so ends up in the comparisons below.
    """

    __slots__ = ("_forward", "_increasing", "_interval", "_inverse", "_run")

    def __init__(
        self,
        run: _Decider,
        interval: Interval,
        forward: Callable[[float], float] = _same,
        inverse: Callable[[float], float] = _same,
        increasing: bool = True,
    ) -> None:
        self._run, self._interval = run, interval
        self._forward, self._inverse, self._increasing = forward, inverse, increasing

    def _compare(self, other: Any, less: bool, equal: bool) -> Any:
        """Whether this is less than `other`, or more; a tie has probability 0, but for itself."""
        if other is self:
            return equal
        if isinstance(other, UndecidedNumber):
            self._run.give_up("it compares two random numbers with each other")
        threshold = _scalar(other)
        if threshold is None:
            return NotImplemented
        if math.isnan(threshold):
            return False
        below = self._run.below(self._interval, self._inverse(threshold)) == self._increasing
        return below == less

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, less=True, equal=False)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, less=True, equal=True)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, less=False, equal=False)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, less=False, equal=True)

    def _map(
        self,
        forward: Callable[[float], float],
        inverse: Callable[[float], float],
        increasing: bool = True,
    ) -> UndecidedNumber:
        before, back = self._forward, self._inverse
        return UndecidedNumber(
            self._run,
            self._interval,
            lambda value: forward(before(value)),
            lambda value: back(inverse(value)),
            self._increasing == increasing,
        )

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, _REAL):
            return NotImplemented
        c = float(other)
        return self._map(lambda x: x + c, lambda y: y - c)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, _REAL):
            return NotImplemented
        c = float(other)
        if c == 0.0:
            return 0.0
        return self._map(lambda x: x * c, lambda y: y / c, c > 0.0)

    def __truediv__(self, other: Any) -> Any:
        if not isinstance(other, _REAL) or float(other) == 0.0:
            return NotImplemented
        c = float(other)
        return self._map(lambda x: x / c, lambda y: y * c, c > 0.0)

    def __neg__(self) -> UndecidedNumber:
        return self._map(lambda x: -x, lambda y: -y, False)

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, _REAL) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, _REAL) else NotImplemented

    __radd__ = __add__
    __rmul__ = __mul__

    def log(self) -> UndecidedNumber:
        """Called by numpy.log."""
        return self._map(_log, _exp)

    def __floor__(self) -> int:
        ends = sorted((self._forward(self._interval.low), self._forward(self._interval.high)))
        if not np.isfinite(ends).all():
            self._run.give_up("it rounds an unbounded random number")
        low, high = math.floor(ends[0]), math.ceil(ends[1])
        while high - low > 1:
            middle = (low + high) // 2
            if self < middle:
                high = middle
            else:
                low = middle
        return low

    def __int__(self) -> int:
        floor = self.__floor__()
        return floor if floor >= 0 else floor + 1

    def __float__(self) -> float:
        self._run.give_up("it turns a random number into a float before comparing it")

    def __bool__(self) -> bool:
        return True


def _scalar(value: Any) -> float | None:
    """An ordinary number, also out of an array or a tensor without axes; None if it is not one."""
    if isinstance(value, _REAL):
        return float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return float(value.item())
    return None


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
