"""The exact distribution of what a program returns, by following every branch of its random draws.

A program is a function of a random generator.  It is handed a numpy `Generator` that answers
from two primitives only: a category of a finite law, and a uniform number.  A category branches
into its outcomes.  A uniform number is left undecided until the program compares it with a
threshold; then its interval is split there, and both sides are followed.  So a rule written with
``rng.random() < p / q``, ``rng.choice(V, p=law)`` or ``np.searchsorted(cumulative, rng.random())``
has finitely many paths, each of known probability.

Every path is then run again with ordinary numbers drawn from the intervals that it was found to
stand for, and thousands of times in all.  A program that draws randomness from elsewhere, that
remembers earlier runs, or that does with a number what cannot be followed here, gives another
result there, or is seen to (see `otlp.auditing.hidden`), and is reported, not misjudged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np

from otlp.auditing.hidden import HiddenInput
from otlp.auditing.random_source import RandomSource
from otlp.auditing.torch_source import followed_torch
from otlp.auditing.undecided import Interval, UndecidedNumber
from otlp.distribution import FloatArray

RAREST_PATH = 1e-12
"""Paths less likely than this are not followed; their total is `ExactDistribution.unexplored`."""

REPETITIONS = 2_000
"""How often the paths are run again in random order: what departs one time in a hundred, for
whatever reason, is missed with probability 2e-9."""

LONGEST_PATHS = 10
"""Decisions allowed in all, as a multiple of `max_paths`."""

Result = TypeVar("Result", bound=Hashable)


class NotEnumerableError(Exception):
    """The program's law cannot be enumerated; the message says why."""


class _Abandoned(BaseException):
    """Leaves the program from inside a draw, past any ``except Exception`` of its own."""


@dataclass(frozen=True, eq=False)
class ExactDistribution(Generic[Result]):
    """The exact distribution of a program's result.

    Attributes
    ----------
    weights : dict
        Probability of each result.
    unexplored : float
        Probability of the paths that were too unlikely to follow.
    paths : int
        How many were followed.
    repetitions : int
        How often one of them was run again; all gave the same result.
    """

    weights: dict[Result, float]
    unexplored: float
    paths: int
    repetitions: int


_Drawn: TypeAlias = "Interval | int"


class _Explorer(RandomSource):
    """Follows a prefix of decisions, then always the likelier branch; notes the other ones."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        super().__init__()
        self.decisions = list(prefix)
        self.depth = 0
        self.probability = 1.0
        self.branches: list[tuple[int, ...]] = []
        self.unexplored = 0.0
        self.drawn: list[_Drawn] = []
        self.trouble = ""

    def uniform_number(self) -> Any:
        interval = Interval()
        self.drawn.append(interval)
        return UndecidedNumber(self, interval)

    def category(self, law: FloatArray) -> int:
        positive = np.flatnonzero(law > 0.0)
        index = int(positive[self.decide(law[positive].tolist())])
        self.drawn.append(index)
        return index

    def give_up(self, reason: str) -> NoReturn:
        self.trouble = self.trouble or reason
        raise _Abandoned

    def below(self, interval: Interval, threshold: float) -> bool:
        """Whether the number is less than the threshold: decided now if it was open."""
        low, high = interval.low, interval.high
        if threshold <= low or threshold >= high:
            return threshold >= high
        if interval.behind or interval.rate != 1.0:
            self.give_up("it compares a random number with others and with a threshold")
        share = (threshold - low) / (high - low)
        if self.decide([share, 1.0 - share]) == 0:
            interval.high = threshold
            return True
        interval.low = threshold
        return False

    def earlier(self, one: Interval, scale: float, other: Interval, other_scale: float) -> bool:
        """Whether the first of two waiting times is the earlier one: decided now."""
        if one is other or not (one.untouched and other.untouched):
            self.give_up("it compares random numbers with each other in more than a race")
        rates = one.rate / scale, other.rate / other_scale
        first = self.decide([rates[0] / sum(rates), rates[1] / sum(rates)]) == 0
        if not first:
            one, scale, other, other_scale = other, other_scale, one, scale
        one.rate = sum(rates) * scale
        other.behind = one, scale / other_scale
        return first

    def decide(self, chances: list[float]) -> int:
        """The branch to take here."""
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
    """Repeats a path with ordinary numbers from its intervals."""

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
            # Off the ends, where rounding in the program's own arithmetic may decide.
            at = float(self._rng.uniform(0.1, 0.9))
            value = (interval.low + at * (interval.high - interval.low)) ** (1.0 / interval.rate)
            if interval.behind:
                winner, times = interval.behind
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
    """Compute the exact distribution of what a program returns.

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
    repetitions : int, optional
        How often paths are run again, beside once each; by default `REPETITIONS`.

    Returns
    -------
    ExactDistribution

    Raises
    ------
    NotEnumerableError
        If there are too many paths, if the program calls a method of the generator that has no
        finite set of outcomes, does more with a uniform number than shift, scale, take the
        logarithm, round down and compare it with ordinary numbers, or is seen to depend on more
        than the generator.

    Notes
    -----
    Two runs of the program a path, and 2,000 more.  Uniform numbers are taken as real numbers: a
    generator's own steps of 2^-53 are neglected.
    """
    weights: dict[Result, float] = {}
    pending: list[tuple[int, ...]] = [()]
    followed: list[tuple[list[_Drawn], Result]] = []
    unexplored, decisions, paths, repeated = 0.0, 0, 0, 0
    again_and_again = REPETITIONS if repetitions is None else repetitions
    hidden = HiddenInput(program)

    while pending:
        run = _Explorer(pending.pop())
        try:
            with followed_torch(run):
                result = program(run)
        except _Abandoned:
            if run.trouble:
                raise NotEnumerableError(run.trouble) from None
            unexplored += run.probability
        else:
            if run.trouble:
                raise NotEnumerableError(run.trouble)
            _repeat(program, run.drawn, result, rng, hidden)
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
    hidden.settle()
    for again in rng.integers(len(followed), size=again_and_again) if followed else ():
        drawn, result = followed[again]
        _repeat(program, drawn, result, rng, hidden)
        repeated += 1
    if seen := hidden.found():
        raise NotEnumerableError(seen)
    return ExactDistribution(weights, unexplored, paths, repeated)


def _repeat(
    program: Callable[[Any], Result],
    drawn: list[_Drawn],
    result: Result,
    rng: np.random.Generator,
    hidden: HiddenInput,
) -> None:
    """Run a path again with ordinary numbers, which must give the same.

    Raises
    ------
    NotEnumerableError
        If it does not.
    """
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
            or f"on one path it gave {result}, and {again} when run again with ordinary random "
            "numbers: it draws randomness from elsewhere than rng, or remembers earlier runs, "
            "or uses a random number in a way that cannot be followed"
        )
