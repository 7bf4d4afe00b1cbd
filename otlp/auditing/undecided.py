"""A uniform number that takes a side only when it is compared with a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from otlp.auditing.races import Clock


class Interval:
    """What is known of a uniform number U: it lies in [low, high).

    Attributes
    ----------
    low, high : float
    rate : float
        Of the waiting time -log U: more than 1 if it is the first of a race.
    behind : tuple of (Interval, float) or None
        Whose waiting time, times a number, this one's exceeds: it has lost a race.
    """

    __slots__ = ("behind", "high", "low", "rate")

    def __init__(self) -> None:
        self.low, self.high, self.rate = 0.0, 1.0, 1.0
        self.behind: tuple[Interval, float] | None = None

    @property
    def untouched(self) -> bool:
        """Whether nothing but the outcome of races that it won is known."""
        return (self.low, self.high, self.behind) == (0.0, 1.0, None)


class _Decider(Protocol):
    """Decides comparisons, or gives up."""

    def below(self, interval: Interval, threshold: float) -> bool: ...

    def earlier(self, one: Interval, scale: float, other: Interval, other_scale: float) -> bool: ...

    def give_up(self, reason: str) -> NoReturn: ...


def _same(value: float) -> float:
    return value


@dataclass(slots=True, eq=False, repr=False)
class UndecidedNumber:
    """A uniform number that is not decided yet, or an increasing or decreasing function of one.

    Numpy treats it as an object, compares it element by element, and so ends up in the comparisons
    below.
    """

    run: _Decider
    interval: Interval
    forward: Callable[[float], float] = _same
    inverse: Callable[[float], float] = _same
    increasing: bool = True
    clock: Clock | None = None

    @classmethod
    def __torch_function__(cls, *given: Any) -> Any:
        """Let PyTorch take it for a tensor, for `FollowedTensors` to answer."""
        return NotImplemented

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **form: Any) -> Any:
        """Let numpy go on as with any object, but not where it would compute with few bits."""
        for value in given:
            self._check(value)
        return getattr(function, method)(*map(_boxed, given), **form)

    def _compare(self, other: Any, less: bool, equal: bool) -> Any:
        """Whether this is less than `other`, or more; a tie has probability 0, but for itself."""
        if other is self:
            return equal
        if isinstance(other, UndecidedNumber):
            mine, its = self.clock, other.clock
            if mine is None or its is None or not mine.alike(its):
                self.run.give_up("it compares two random numbers with each other")
            first = self.run.earlier(self.interval, mine.scale, other.interval, its.scale)
            return (first == mine.runs_forward) == less
        threshold = self._scalar(other)
        if threshold is None:
            return NotImplemented
        if math.isnan(threshold):
            return False
        if math.isinf(threshold):
            return (threshold > 0.0) == less
        below = self.run.below(self.interval, self.inverse(threshold)) == self.increasing
        return below == less

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, less=True, equal=False)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, less=True, equal=True)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, less=False, equal=False)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, less=False, equal=True)

    def _scalar(self, value: Any) -> float | None:
        """An ordinary number, also out of an array or a tensor without axes; else None."""
        if isinstance(value, int | float):
            return float(value)
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            self._check(value)
            return float(value.item())
        return None

    def _check(self, value: Any) -> None:
        """Give up beside a number of few bits: the result would be one, in steps that count."""
        kind = getattr(value, "dtype", None)
        if kind is not None and any(name in str(kind) for name in ("float16", "float8")):
            self.run.give_up(f"it draws or compares in {kind}, whose steps cannot be followed")

    def _map(
        self,
        forward: Callable[[float], float],
        inverse: Callable[[float], float],
        increasing: bool = True,
        clock: Clock | None = None,
    ) -> UndecidedNumber:
        before, back = self.forward, self.inverse
        return UndecidedNumber(
            self.run,
            self.interval,
            lambda value: forward(before(value)),
            lambda value: back(inverse(value)),
            self.increasing == increasing,
            clock,
        )

    def __add__(self, other: Any) -> Any:
        c = self._scalar(other)
        if c is None:
            return NotImplemented
        if not math.isfinite(c):
            return c
        return self._map(lambda x: x + c, lambda y: y - c, clock=self.clock and self.clock.plus(c))

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, UndecidedNumber):
            self.run.give_up("it multiplies two random numbers")
        c = self._scalar(other)
        if c is None or not math.isfinite(c):
            return NotImplemented
        if c == 0.0:
            return 0.0
        clock = self.clock and self.clock.times(c)
        return self._map(lambda x: x * c, lambda y: y / c, c > 0.0, clock)

    def __truediv__(self, other: Any) -> Any:
        c = self._scalar(other)
        if c is None:
            return NotImplemented
        if c != 0.0:
            return self * (1.0 / c) if math.isfinite(c) else 0.0
        ends = sorted((self.forward(self.interval.low), self.forward(self.interval.high)))
        if ends[0] < 0.0 < ends[1]:
            self.run.give_up("it divides a random number of either sign by 0")
        return math.inf if ends[1] > 0.0 else -math.inf

    def __rtruediv__(self, other: Any) -> Any:
        c = self._scalar(other)
        if c is None or not math.isfinite(c):
            return NotImplemented
        if c == 0.0:
            return 0.0
        ends = sorted((self.forward(self.interval.low), self.forward(self.interval.high)))
        if ends[0] < 0.0:
            self.run.give_up("it divides by a random number of either sign")
        clock = self.clock and self.clock.divides(c)
        # a number that is positive compares with 0 and below as infinity does
        return self._map(
            lambda x: c / x if x else math.inf,
            lambda y: c / y if y * c > 0.0 else math.inf,
            c < 0.0,
            clock,
        )

    def __neg__(self) -> UndecidedNumber:
        clock = self.clock and self.clock.times(-1.0)
        return self._map(lambda x: -x, lambda y: -y, False, clock)

    def __sub__(self, other: Any) -> Any:
        c = self._scalar(other)
        return NotImplemented if c is None else self + -c

    def __rsub__(self, other: Any) -> Any:
        c = self._scalar(other)
        return NotImplemented if c is None else -self + c

    __radd__ = __add__
    __rmul__ = __mul__

    def log(self) -> UndecidedNumber:
        """Called by numpy.log."""
        if self.forward is _same:
            clock: Clock | None = Clock(factor=-1.0)
        else:
            clock = self.clock and self.clock.log()
        return self._map(log, exp, clock=clock)

    def exp(self) -> UndecidedNumber:
        """Called by numpy.exp."""
        return self._map(exp, log, clock=self.clock and self.clock.exp())

    def __floor__(self) -> int:
        ends = sorted((self.forward(self.interval.low), self.forward(self.interval.high)))
        if not np.isfinite(ends).all():
            self.run.give_up("it rounds an unbounded random number")
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
        self.run.give_up("it turns a random number into a float before comparing it")

    def __bool__(self) -> bool:
        return True


def _boxed(value: Any) -> Any:
    """An array without axes, which numpy computes with itself."""
    if not isinstance(value, UndecidedNumber):
        return value
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def log(number: Any) -> Any:
    """The logarithm of a number, decided or not."""
    if isinstance(number, UndecidedNumber):
        return number.log()
    return math.log(number) if number > 0.0 else -math.inf


def exp(number: Any) -> Any:
    """The exponential of a number, decided or not."""
    if isinstance(number, UndecidedNumber):
        return number.exp()
    return math.exp(min(number, 700.0))
