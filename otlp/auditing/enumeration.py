"""Exact distribution of a program's result, computed by following every branch of its draws.

A program is a function of a random generator.  The generator passed to the program is a NumPy
`Generator` with two primitives: a category of a finite law, and a uniform number.  A category
branches into its outcomes.  A uniform number is an interval; when the program compares the number
with a threshold, the interval is split and both sides are followed.  A rule written with
``rng.random() < p / q``, ``rng.choice(V, p=law)`` or ``np.searchsorted(cumulative, rng.random())``
therefore has finitely many paths of known probability.

Each path is then repeated with ordinary numbers drawn from its intervals, and random paths are
repeated thousands of times.  A program that uses other randomness, keeps state between runs, or
uses a number in an unsupported way returns a different result in a repetition, or is detected by
`otlp.auditing.hidden_inputs`; NotEnumerableError is raised in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np

from otlp.auditing.hidden_inputs import HiddenInput
from otlp.auditing.lazy_uniform import Interval, LazyUniform
from otlp.auditing.random_source import RandomSource
from otlp.auditing.torch_source import followed_torch
from otlp.distribution import FloatArray

RAREST_PATH = 1e-12
"""Less likely paths are not followed; their total is `ExactDistribution.unexplored`."""

REPETITIONS = 2_000
"""Number of repetitions of random paths.  A deviation in 1% of the runs is missed with probability
2e-9."""

LONGEST_PATHS = 10
"""Maximum total number of decisions, as a multiple of `max_paths`."""

Result = TypeVar("Result", bound=Hashable)


class NotEnumerableError(Exception):
    """The program's distribution cannot be enumerated; the message states the reason."""


class _Abandoned(BaseException):
    """Exits the program from inside a draw; not caught by ``except Exception`` in the program."""


@dataclass(frozen=True, eq=False)
class ExactDistribution(Generic[Result]):
    """Exact distribution of a program's result.

    Attributes
    ----------
    weights : dict
        Probability of each result.
    unexplored : float
        Total probability of the paths that were not followed.
    paths : int
        Number of paths followed.
    repetitions : int
        Number of repetitions of paths; all returned the same result.
    """

    weights: dict[Result, float]
    unexplored: float
    paths: int
    repetitions: int


_Drawn: TypeAlias = "Interval | int"


class _Explorer(RandomSource):
    """Follows a prefix of decisions, then the most likely branch; records the other branches."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        super().__init__()
        self.decisions = list(prefix)
        self.depth = 0
        self.probability = 1.0
        self.branches: list[tuple[int, ...]] = []
        self.unexplored = 0.0
        self.drawn: list[_Drawn] = []
        self.reason = ""

    def uniform_number(self) -> Any:
        interval = Interval()
        self.drawn.append(interval)
        return LazyUniform(self, interval)

    def category(self, law: FloatArray) -> int:
        positive = np.flatnonzero(law > 0.0)
        index = int(positive[self.decide(law[positive].tolist())])
        self.drawn.append(index)
        return index

    def give_up(self, reason: str) -> NoReturn:
        self.reason = self.reason or reason
        raise _Abandoned

    def below(self, interval: Interval, threshold: float) -> bool:
        """Return whether the number is below the threshold; branch if both are possible."""
        low, high = interval.low, interval.high
        if threshold <= low or threshold >= high:
            return threshold >= high
        if interval.lost_to or interval.rate != 1.0:
            self.give_up("it compares a random number with others and with a threshold")
        share = (threshold - low) / (high - low)
        if self.decide([share, 1.0 - share]) == 0:
            interval.high = threshold
            return True
        interval.low = threshold
        return False

    def earlier(self, one: Interval, scale: float, other: Interval, other_scale: float) -> bool:
        """Branch on whether the first of two waiting times is the earlier."""
        if one is other or not (one.unconstrained and other.unconstrained):
            self.give_up("it compares random numbers with each other in more than a race")
        rates = one.rate / scale, other.rate / other_scale
        first = self.decide([rates[0] / sum(rates), rates[1] / sum(rates)]) == 0
        if not first:
            one, scale, other, other_scale = other, other_scale, one, scale
        one.rate = sum(rates) * scale
        other.lost_to = one, scale / other_scale
        return first

    def decide(self, chances: list[float]) -> int:
        """Return the index of the branch to take."""
        if self.depth < len(self.decisions):
            taken = self.decisions[self.depth]
        else:
            taken = max(range(len(chances)), key=chances.__getitem__)
            for other, chance in enumerate(chances):
                if other == taken:
                    continue
                if self.probability * chance < RAREST_PATH:
                    self.unexplored += self.probability * chance
                else:
                    self.branches.append((*self.decisions, other))
            self.decisions.append(taken)
        self.depth += 1
        self.probability *= chances[taken]
        if self.probability < RAREST_PATH:
            raise _Abandoned
        return taken


class _Repetition(RandomSource):
    """Repeats a path with ordinary numbers drawn from its intervals."""

    def __init__(self, drawn: list[_Drawn], rng: np.random.Generator) -> None:
        super().__init__()
        self._drawn = iter(drawn)
        self._rng = rng
        self._values: dict[Interval, float] = {}

    def uniform_number(self) -> float:
        interval = next(self._drawn, None)
        if not isinstance(interval, Interval):
            raise _Abandoned
        return self._value(interval)

    def _value(self, interval: Interval) -> float:
        if interval not in self._values:
            # Avoid the ends, where rounding in the program's arithmetic could change a comparison.
            at = float(self._rng.uniform(0.1, 0.9))
            value = (interval.low + at * (interval.high - interval.low)) ** (1.0 / interval.rate)
            if interval.lost_to:
                winner, times = interval.lost_to
                value *= self._value(winner) ** times
            self._values[interval] = value
        return self._values[interval]

    def category(self, law: FloatArray) -> int:
        index = next(self._drawn, None)
        if not isinstance(index, int):
            raise _Abandoned
        return index

    def give_up(self, reason: str) -> NoReturn:
        raise _Abandoned


def enumerate_distribution(
    program: Callable[[Any], Result],
    max_paths: int,
    rng: np.random.Generator,
    progress: Callable[[int], None] = lambda paths: None,
    repetitions: int | None = None,
) -> ExactDistribution[Result]:
    """Compute the exact distribution of a program's result.

    Parameters
    ----------
    program : callable
        Accepts a `numpy.random.Generator` (a `RandomSource`) and returns a hashable result.  To
        include exceptions, the program must return them.
    max_paths : int
        Maximum number of paths.
    rng : numpy.random.Generator
        Draws the ordinary numbers of the repetitions.
    progress : callable
        Called with the number of paths followed so far.
    repetitions : int, optional
        Number of repetitions of random paths, in addition to one per path; default `REPETITIONS`.

    Returns
    -------
    ExactDistribution

    Raises
    ------
    NotEnumerableError
        If there are more than `max_paths` paths; if the program calls a method of the generator
        without a finite set of outcomes; if the program does more with a uniform number than
        shift, scale, take the logarithm, round down and compare with ordinary numbers; or if the
        program is found to depend on more than the generator.

    Notes
    -----
    The program runs twice per path, and 2,000 more times.  Uniform numbers are treated as real
    numbers: the resolution 2^-53 of a generator is neglected.
    """
    weights: dict[Result, float] = {}
    pending: list[tuple[int, ...]] = [()]
    followed: list[tuple[list[_Drawn], Result]] = []
    unexplored, decisions, paths, repeated = 0.0, 0, 0, 0
    count = REPETITIONS if repetitions is None else repetitions
    hidden = HiddenInput(program)

    def repeat(drawn: list[_Drawn], result: Result) -> None:
        """Repeat a path with ordinary numbers and compare the results."""
        repetition = _Repetition(drawn, rng)
        try:
            with hidden.calls(), followed_torch(repetition):
                again: object = program(repetition)
        except _Abandoned:
            again = None
        hidden.drawn_from(repetition.generators)
        if again != result:
            raise NotEnumerableError(
                hidden.found()
                or f"it returned {result} on one path, and {again} when the path was repeated with "
                "ordinary random numbers: it uses randomness other than rng, keeps state between "
                "runs, or uses a random number in a way that cannot be followed"
            )

    while pending:
        run = _Explorer(pending.pop())
        try:
            with followed_torch(run):
                result = program(run)
        except _Abandoned:
            if run.reason:
                raise NotEnumerableError(run.reason) from None
            unexplored += run.probability
        else:
            if run.reason:
                raise NotEnumerableError(run.reason)
            repeat(run.drawn, result)
            weights[result] = weights.get(result, 0.0) + run.probability
            repeated += 1
            if len(followed) < REPETITIONS:
                followed.append((run.drawn, result))
        pending.extend(run.branches)
        unexplored += run.unexplored
        paths += 1
        decisions += run.depth
        progress(paths)
        if paths + len(pending) > max_paths or decisions > LONGEST_PATHS * max_paths:
            raise NotEnumerableError(f"it has more than {max_paths:,} paths")
    hidden.start_comparing()
    for index in rng.integers(len(followed), size=count) if followed else ():
        repeat(*followed[index])
        repeated += 1
    if reason := hidden.found():
        raise NotEnumerableError(reason)
    return ExactDistribution(weights, unexplored, paths, repeated)
