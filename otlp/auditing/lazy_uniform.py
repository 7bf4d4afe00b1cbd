"""Lazy uniform numbers: an interval that is narrowed when the number is compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, NoReturn, Protocol

import numpy as np

from otlp.auditing.races import Clock


class Interval:
    """Known constraints on a uniform number U, which lies in [low, high).

    Attributes
    ----------
    low, high : float
    rate : float
        Rate of the waiting time -log U; more than 1 if the number won a race.
    lost_to : tuple of (Interval, float) or None
        Winner of a race and a factor: the waiting time exceeds the winner's times the factor.
    """

    __slots__ = ("high", "lost_to", "low", "rate")

    def __init__(self) -> None:
        self.low, self.high, self.rate = 0.0, 1.0, 1.0
        self.lost_to: tuple[Interval, float] | None = None

    @property
    def unconstrained(self) -> bool:
        """Whether the only constraints are races that the number won."""
        return (self.low, self.high, self.lost_to) == (0.0, 1.0, None)


class _Decider(Protocol):
    """Branches on comparisons; `give_up` ends the run."""

    def below(self, interval: Interval, threshold: float) -> bool: ...

    def earlier(self, one: Interval, scale: float, other: Interval, other_scale: float) -> bool: ...

    def give_up(self, reason: str) -> NoReturn: ...


def _identity(value: float) -> float:
    return value


@dataclass(slots=True, eq=False, repr=False)
class LazyUniform:
    """A uniform number without a value, or an increasing or decreasing function of such a number.

    NumPy treats the number as an object and calls the comparison methods below, element by
    element.
    """

    run: _Decider
    interval: Interval
    forward: Callable[[float], float] = _identity
    inverse: Callable[[float], float] = _identity
    increasing: bool = True
    clock: Clock | None = None

    @classmethod
    def __torch_function__(cls, *given: Any) -> Any:
        """Let PyTorch accept the number as an argument, so that `LazyTensors` is called."""
        return NotImplemented

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **form: Any) -> Any:
        """Apply a NumPy function as to any object; give up on half precision."""
        for value in given:
            self._check(value)
        return getattr(function, method)(*map(_as_object_array, given), **form)

    def _compare(self, other: Any, less: bool, equal: bool) -> Any:
        """Compare with `other`; a tie has probability 0, except with the same object."""
        if other is self:
            return equal
        if isinstance(other, LazyUniform):
            clock, rival = self.clock, other.clock
            if clock is None or rival is None or not clock.comparable(rival):
                self.run.give_up("it compares two random numbers with each other")
            first = self.run.earlier(self.interval, clock.scale, other.interval, rival.scale)
            return (first == clock.increasing) == less
        threshold = self._scalar(other)
        if threshold is None:
            return NotImplemented
        if math.isnan(threshold):
            return False
        if math.isinf(threshold):
            return (threshold > 0.0) == less
        below = self.run.below(self.interval, self.inverse(threshold)) == self.increasing
        return below == less

    __lt__ = partialmethod(_compare, less=True, equal=False)
    __le__ = partialmethod(_compare, less=True, equal=True)
    __gt__ = partialmethod(_compare, less=False, equal=False)
    __ge__ = partialmethod(_compare, less=False, equal=True)

    def _scalar(self, value: Any) -> float | None:
        """Return an ordinary number (also from a 0-d array or tensor) as a float, else None."""
        if isinstance(value, int | float):
            return float(value)
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            self._check(value)
            return float(value.item())
        return None

    def _check(self, value: Any) -> None:
        """Give up on half-precision operands: the rounding of the result is not negligible."""
        kind = getattr(value, "dtype", None)
        if kind is not None and any(name in str(kind) for name in ("float16", "float8")):
            self.run.give_up(f"it draws or compares in {kind}, whose rounding is not followed")

    def _map(
        self,
        forward: Callable[[float], float],
        inverse: Callable[[float], float],
        increasing: bool = True,
        clock: Clock | None = None,
    ) -> LazyUniform:
        before, back = self.forward, self.inverse
        return LazyUniform(
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
        if isinstance(other, LazyUniform):
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
            self.run.give_up("it divides a random number of unknown sign by 0")
        return math.inf if ends[1] > 0.0 else -math.inf

    def __rtruediv__(self, other: Any) -> Any:
        c = self._scalar(other)
        if c is None or not math.isfinite(c):
            return NotImplemented
        if c == 0.0:
            return 0.0
        ends = sorted((self.forward(self.interval.low), self.forward(self.interval.high)))
        if ends[0] < 0.0:
            self.run.give_up("it divides by a random number of unknown sign")
        clock = self.clock and self.clock.divides(c)
        # The quotient has the sign of c: thresholds of the other sign map to infinity.
        return self._map(
            lambda x: c / x if x else math.inf,
            lambda y: c / y if y * c > 0.0 else math.inf,
            c < 0.0,
            clock,
        )

    def __neg__(self) -> LazyUniform:
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

    def log(self) -> LazyUniform:
        """Called by numpy.log."""
        if self.forward is _identity:
            clock: Clock | None = Clock(factor=-1.0)
        else:
            clock = self.clock and self.clock.log()
        return self._map(log, exp, clock=clock)

    def exp(self) -> LazyUniform:
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
        self.run.give_up("it converts a random number to a float before comparing it")

    def __bool__(self) -> bool:
        return True


def _as_object_array(value: Any) -> Any:
    """Wrap a LazyUniform in a 0-d object array, with which NumPy computes."""
    if not isinstance(value, LazyUniform):
        return value
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def log(number: Any) -> Any:
    """Return the logarithm of an ordinary or lazy number."""
    if isinstance(number, LazyUniform):
        return number.log()
    return math.log(number) if number > 0.0 else -math.inf


def exp(number: Any) -> Any:
    """Return the exponential of an ordinary or lazy number."""
    if isinstance(number, LazyUniform):
        return number.exp()
    return math.exp(min(number, 700.0))
