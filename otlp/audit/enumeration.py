"""The exact law of what a program returns, by following every branch of its random draws.

A program is a function of a random generator.  It is handed a numpy `Generator` that answers
from two primitives only: a category of a finite law, and a uniform number.  A category branches
into its outcomes.  A uniform number is left undecided until the program compares it with a
threshold; then its interval is split there, and both sides are followed.  So a rule written with
``rng.random() < p / q``, ``rng.choice(V, p=law)`` or ``np.searchsorted(cumulative, rng.random())``
has finitely many paths, each of known probability.

Every path is then run once more with ordinary numbers drawn from the intervals that it was found
to stand for.  A program that draws randomness from elsewhere, or that does with a number what
cannot be followed here, gives another result there and is reported, not misjudged.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np

from otlp.distribution import FloatArray

__all__ = ["Law", "NotEnumerableError", "RandomSource", "enumerate_law"]

NEGLIGIBLE = 1e-12
"""Paths less likely than this are not followed; their total is `Law.unexplored`."""

LEAST_REPLAYS = 64
"""How often at least the program is run again with ordinary numbers, over all paths."""

LONGEST_PATHS = 50
"""Decisions allowed in all, as a multiple of `max_paths`."""

LARGEST_RANGE = 100_000
"""Integers of a larger range are seeds, not choices."""

_ELSEWHERE = "it draws from a global random generator, not from rng alone"

_SCRATCH = np.random.default_rng(0)
"""Checks arguments as numpy does; what it draws is thrown away."""


Result = TypeVar("Result", bound=Hashable)


class NotEnumerableError(Exception):
    """The program's law cannot be enumerated; the message says why."""


class _Abandoned(BaseException):
    """Leaves the program from inside a draw, past any ``except Exception`` of its own."""


@dataclass(frozen=True, eq=False)
class Law(Generic[Result]):
    """The exact law of a program's result.

    Attributes
    ----------
    weights : dict
        Probability of each result.
    unexplored : float
        Probability of the paths that were too unlikely to follow.
    paths : int
        How many were followed.
    """

    weights: dict[Result, float]
    unexplored: float
    paths: int


_GENERATOR: Any = np.random.Generator
_BITS = np.random.PCG64(0)


class RandomSource(_GENERATOR):  # type: ignore[misc]
    """The methods of numpy's `Generator` that verification rules use, from two primitives.

    A subclass, so that ``np.random.default_rng(rng)`` and `isinstance` take it for what it stands
    for; its own bits are never drawn from.
    """

    def __init__(self) -> None:
        super().__init__(_BITS)

    def uniform_number(self) -> Any:
        """A number uniform on [0, 1)."""
        raise NotImplementedError

    def category(self, law: FloatArray) -> int:
        """An index drawn from a probability vector."""
        raise NotImplementedError

    def give_up(self, reason: str) -> NoReturn:
        """Declare that the program cannot be enumerated."""
        raise NotImplementedError

    def random(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Uniform numbers on [0, 1), as `Generator.random`."""
        if out is not None:
            self.give_up("it calls rng.random with out=")
        if size is None:
            return self.uniform_number()
        numbers = np.empty(size, dtype=object)
        for at in np.ndindex(numbers.shape):
            numbers[at] = self.uniform_number()
        return self._plain(numbers)

    def _plain(self, numbers: Any) -> Any:
        return numbers

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        """Uniform numbers on [low, high), as `Generator.uniform`."""
        return low + (high - low) * self.random(size)

    def integers(
        self,
        low: int,
        high: int | None = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Integers of a range, as `Generator.integers`."""
        _SCRATCH.integers(low, high, endpoint=endpoint)
        first, last = (0, low) if high is None else (low, high)
        count = last - first + endpoint
        if count > LARGEST_RANGE:
            self.give_up(f"it draws an integer from a range of {count:,} (a seed?)")
        return self.choice(np.arange(first, first + count).astype(dtype), size)

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """Entries of a population, as `Generator.choice`; a law off 1 raises as there."""
        _SCRATCH.choice(a, size, replace, p, axis, shuffle)
        population = np.asarray(np.arange(a) if np.ndim(a) == 0 else a)
        if axis != 0:
            self.give_up("it calls rng.choice with axis=")
        if not (replace or shuffle):
            self.give_up("it calls rng.choice with shuffle=False, whose order is not specified")
        weights = np.ones(len(population)) if p is None else np.array(p, dtype=np.float64)
        if size is None:
            return population[self.category(weights / weights.sum())]
        shape = (size,) if np.ndim(size) == 0 else tuple(size)
        chosen = []
        for _ in range(math.prod(shape)):
            chosen.append(self.category(weights / weights.sum()))
            if not replace:
                weights[chosen[-1]] = 0.0
        return population[np.array(chosen, dtype=np.int64).reshape(shape)]

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        """Counts of n categories, as `Generator.multinomial`: the last one takes what is left."""
        _SCRATCH.multinomial(n, pvals)
        law = np.array(pvals, dtype=np.float64)
        if size is not None or law.ndim != 1:
            self.give_up("it calls rng.multinomial for many laws or samples at once")
        law[-1] = max(0.0, 1.0 - float(law[:-1].sum()))
        law /= law.sum()
        counts = np.zeros(law.size, dtype=np.int64)
        for _ in range(n):
            counts[self.category(law)] += 1
        return counts

    def binomial(self, n: int, p: float, size: Any = None) -> Any:
        """Successes among n trials, as `Generator.binomial`."""
        _SCRATCH.binomial(n, p)
        if size is not None or np.ndim(n) or np.ndim(p):
            self.give_up("it calls rng.binomial for many samples at once")
        return sum(self.category(np.array([1.0 - p, p])) for _ in range(n))

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """A random order, as `Generator.permutation`."""
        return self.choice(x, x if np.ndim(x) == 0 else len(x), replace=False, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put in random order in place, as `Generator.shuffle`."""
        x[:] = self.permutation(np.array(x), axis)


def _refusal(name: str) -> property:
    def refuse(source: RandomSource) -> NoReturn:
        source.give_up(f"it uses rng.{name}, which has no finite set of outcomes here")

    return property(refuse)


_COPIES = ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__")
_PUBLIC = (name for name in dir(np.random.Generator) if not name.startswith("_"))
for _name in {*_PUBLIC, *_COPIES} - vars(RandomSource).keys():
    setattr(RandomSource, _name, _refusal(_name))


class _Interval:
    """What is known of a uniform number: it lies in [low, high)."""

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.low, self.high = 0.0, 1.0


_Drawn: TypeAlias = "_Interval | int"


class _Explorer(RandomSource):
    """Follows a prefix of decisions, then always the likelier branch; notes the other ones."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        super().__init__()
        self.decisions = list(prefix)
        self.known = len(prefix)
        self.depth = 0
        self.probability = 1.0
        self.branches: list[tuple[int, ...]] = []
        self.unexplored = 0.0
        self.drawn: list[_Drawn] = []
        self.trouble = ""

    def uniform_number(self) -> Any:
        interval = _Interval()
        self.drawn.append(interval)
        return _Number(self, interval, _same, _same, True)

    def category(self, law: FloatArray) -> int:
        positive = np.flatnonzero(law > 0.0)
        index = int(positive[self.decide(law[positive].tolist())])
        self.drawn.append(index)
        return index

    def give_up(self, reason: str) -> NoReturn:
        self.trouble = self.trouble or reason
        raise _Abandoned

    def below(self, interval: _Interval, threshold: float) -> bool:
        """Whether the number is less than the threshold: decided now if it was open."""
        low, high = interval.low, interval.high
        if threshold <= low or threshold >= high:
            return threshold >= high
        width = high - low
        if self.decide([(threshold - low) / width, (high - threshold) / width]) == 0:
            interval.high = threshold
            return True
        interval.low = threshold
        return False

    def decide(self, chances: list[float]) -> int:
        """The branch to take here."""
        if self.depth < self.known:
            taken = self.decisions[self.depth]
        else:
            taken = max(range(len(chances)), key=chances.__getitem__)
            for other, chance in enumerate(chances):
                if other == taken:
                    continue
                if self.probability * chance < NEGLIGIBLE:
                    self.unexplored += self.probability * chance
                else:
                    self.branches.append((*self.decisions, other))
            self.decisions.append(taken)
        self.depth += 1
        self.probability *= chances[taken]
        if self.probability < NEGLIGIBLE:
            raise _Abandoned
        return taken


class _Replay(RandomSource):
    """Repeats a path with ordinary numbers from its intervals."""

    def __init__(self, drawn: list[_Drawn], rng: np.random.Generator) -> None:
        super().__init__()
        self._drawn = iter(drawn)
        self._rng = rng

    def uniform_number(self) -> float:
        interval = next(self._drawn, None)
        if not isinstance(interval, _Interval):
            raise _Abandoned
        # Off the ends, where rounding in the program's own arithmetic may decide.
        at = self._rng.uniform(0.1, 0.9)
        return float(interval.low + at * (interval.high - interval.low))

    def category(self, law: FloatArray) -> int:
        index = next(self._drawn, None)
        if not isinstance(index, int):
            raise _Abandoned
        return index

    def give_up(self, reason: str) -> NoReturn:
        raise _Abandoned

    def _plain(self, numbers: Any) -> Any:
        return numbers.astype(np.float64)


def _same(value: float) -> float:
    return value


_REAL = (int, float, np.floating, np.integer)


class _Number:
    """A uniform number that is not decided yet, or an increasing or decreasing function of one.

    It has no numpy protocol of its own: numpy treats it as an object, compares it element by
    element, and so ends up in the comparisons below.
    """

    __slots__ = ("_forward", "_increasing", "_interval", "_inverse", "_run")

    def __init__(
        self,
        run: _Explorer,
        interval: _Interval,
        forward: Callable[[float], float],
        inverse: Callable[[float], float],
        increasing: bool,
    ) -> None:
        self._run, self._interval = run, interval
        self._forward, self._inverse, self._increasing = forward, inverse, increasing

    def _below(self, other: Any, equal: bool) -> Any:
        """Whether this is less than `other`; a tie has probability zero, but for itself."""
        if other is self:
            return equal
        if isinstance(other, np.ndarray) and other.ndim == 0:
            other = other.item()
        if isinstance(other, _Number):
            self._run.give_up("it compares two random numbers with each other")
        if not isinstance(other, _REAL):
            return NotImplemented
        below = self._run.below(self._interval, self._inverse(float(other)))
        return below == self._increasing

    def _above(self, other: Any, equal: bool) -> Any:
        below = self._below(other, not equal)
        return below if below is NotImplemented else not below

    def __lt__(self, other: Any) -> Any:
        return False if _is_nan(other) else self._below(other, False)

    def __le__(self, other: Any) -> Any:
        return False if _is_nan(other) else self._below(other, True)

    def __gt__(self, other: Any) -> Any:
        return False if _is_nan(other) else self._above(other, False)

    def __ge__(self, other: Any) -> Any:
        return False if _is_nan(other) else self._above(other, True)

    def _map(
        self,
        forward: Callable[[float], float],
        inverse: Callable[[float], float],
        increasing: bool = True,
    ) -> _Number:
        before, back = self._forward, self._inverse
        return _Number(
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

    def __neg__(self) -> _Number:
        return self._map(lambda x: -x, lambda y: -y, False)

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, _REAL) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, _REAL) else NotImplemented

    __radd__ = __add__
    __rmul__ = __mul__

    def log(self) -> _Number:
        """Called by numpy.log."""
        return self._map(_log, _exp)

    def __floor__(self) -> int:
        ends = sorted((self._forward(self._interval.low), self._forward(self._interval.high)))
        if not np.isfinite(ends).all():
            self._run.give_up("it rounds an unbounded random number")
        low, high = math.floor(ends[0]), math.ceil(ends[1])
        while high - low > 1:
            middle = (low + high) // 2
            if self._below(middle, False):
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


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def enumerate_law(
    program: Callable[[Any], Result],
    max_paths: int,
    rng: np.random.Generator,
    progress: Callable[[int], None] = lambda paths: None,
) -> Law[Result]:
    """Compute the exact law of what a program returns.

    Parameters
    ----------
    program : callable
        Takes a `numpy.random.Generator` of its own kind, returns something hashable.  An exception
        is a result too, if the program catches it.
    max_paths : int
        Give up beyond this many paths.
    rng : numpy.random.Generator
        For the ordinary numbers of the second run of each path.
    progress : callable
        Called with the number of paths followed so far.

    Returns
    -------
    Law

    Raises
    ------
    NotEnumerableError
        If there are too many paths, if the program calls a method of the generator that has no
        finite set of outcomes, does more with a uniform number than shift, scale, take the
        logarithm, round down and compare it with ordinary numbers, or draws randomness from
        elsewhere.

    Notes
    -----
    Two runs of the program a path, 64 at least.  Uniform numbers are taken as real numbers: a
    generator's own steps of 2^-53 are neglected.
    """
    weights: dict[Result, float] = {}
    pending: list[tuple[int, ...]] = [()]
    followed: list[tuple[list[_Drawn], Result]] = []
    unexplored, decisions, paths = 0.0, 0, 0
    elsewhere = _other_randomness()
    while pending:
        run = _Explorer(pending.pop())
        try:
            result = program(run)
        except _Abandoned:
            if run.trouble:
                raise NotEnumerableError(run.trouble) from None
            unexplored += run.probability
        else:
            if run.trouble:
                raise NotEnumerableError(run.trouble)
            _replay(program, run.drawn, result, rng, elsewhere)
            weights[result] = weights.get(result, 0.0) + run.probability
            if len(followed) < LEAST_REPLAYS:
                followed.append((run.drawn, result))
        pending.extend(run.branches)
        unexplored += run.unexplored
        paths += 1
        decisions += run.depth
        progress(paths)
        if paths + len(pending) > max_paths or decisions > LONGEST_PATHS * max_paths:
            raise NotEnumerableError(f"it has more than {max_paths:,} paths")
    for again in range(LEAST_REPLAYS - paths if followed else 0):
        _replay(program, *followed[again % len(followed)], rng, elsewhere)
    if _other_randomness() != elsewhere:
        raise NotEnumerableError(_ELSEWHERE)
    return Law(weights, unexplored, paths)


def _replay(
    program: Callable[[Any], Result],
    drawn: Iterable[_Drawn],
    result: Result,
    rng: np.random.Generator,
    elsewhere: list[object],
) -> None:
    try:
        again: object = program(_Replay(list(drawn), rng))
    except _Abandoned:
        again = None
    if again == result:
        return
    if _other_randomness() != elsewhere:
        raise NotEnumerableError(_ELSEWHERE)
    raise NotEnumerableError(
        "run again with ordinary random numbers on the same path, it did not give the same "
        f"result ({again} instead of {result}): it draws randomness from elsewhere than rng, or "
        "uses a random number in a way that cannot be followed"
    )


def _other_randomness() -> list[object]:
    """States of generators that no program should touch, to see whether one does."""
    _, key, *rest = np.random.get_state(legacy=True)
    states: list[object] = [random.getstate(), np.asarray(key).tobytes(), *rest, str(_BITS.state)]
    if "torch" in sys.modules:
        states.append(sys.modules["torch"].random.get_rng_state().numpy().tobytes())
    return states
