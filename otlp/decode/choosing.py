"""Random choices behind an interface, so that the same code can be sampled or enumerated.

Drafting and verification make every random decision with a `Chooser`.  `RandomChooser` samples;
`enumerate_choices` replays the same code once for every sequence of decisions and returns the exact
probability of each sequence.  Enumeration therefore checks the code that runs in production.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from otlp.checks import is_a
from otlp.distribution import FloatArray, IntArray, invert_cdf

Result = TypeVar("Result")


class Chooser(ABC):
    """Base class of sources of random decisions.

    Examples
    --------
    >>> from otlp import decode
    >>> runs = decode.enumerate_choices(lambda chooser: chooser.accept(0.25))
    >>> [(result, probability) for result, probability in runs]
    [(True, 0.25), (False, 0.75)]
    """

    @abstractmethod
    def choose(self, masses: FloatArray) -> int:
        """Choose an index with probability proportional to its mass.

        Parameters
        ----------
        masses : ndarray, shape (m,)
            Nonnegative masses with a positive sum, which need not be one.

        Returns
        -------
        int
            Index with positive mass.
        """

    def accept(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.choose(np.array([probability, 1.0 - probability])) == 0

    def draws(self, distribution: FloatArray, n: int) -> IntArray:
        """Draw n i.i.d. tokens from a distribution of shape (V,)."""
        return np.array([self.choose(distribution) for _ in range(n)], dtype=np.int64)


class RandomChooser(Chooser):
    """Random decisions from a NumPy generator.

    Parameters
    ----------
    rng : numpy.random.Generator

    Raises
    ------
    InvalidInputError
        If `rng` is not a generator.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> chooser = decode.RandomChooser(np.random.default_rng(0))
    >>> chooser.choose(np.array([0.0, 1.0]))
    1
    """

    def __init__(self, rng: np.random.Generator) -> None:
        is_a(rng, np.random.Generator, "the random generator")
        self.rng = rng

    def choose(self, masses: FloatArray) -> int:
        """Choose an index by inversion of the cumulative masses; O(m)."""
        return int(invert_cdf(np.cumsum(masses), self.rng.random()))

    def accept(self, probability: float) -> bool:
        """Return True with this probability; O(1)."""
        return bool(self.rng.random() < probability)

    def draws(self, distribution: FloatArray, n: int) -> IntArray:
        """Draw n i.i.d. tokens; O(V + n log V)."""
        return invert_cdf(np.cumsum(distribution), self.rng.random(n))


class _ScriptedChooser(Chooser):
    """Chooser that follows a script of decisions, then takes the first index with positive mass."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.taken: list[int] = []
        self.masses: list[FloatArray] = []
        self.probability = 1.0

    def choose(self, masses: FloatArray) -> int:
        step = len(self.taken)
        index = self.script[step] if step < len(self.script) else int(np.argmax(masses > 0.0))
        self.taken.append(index)
        self.masses.append(masses)
        self.probability *= float(masses[index] / masses.sum())
        return index

    def next_script(self) -> list[int] | None:
        """Return the decisions of the next branch in depth-first order; None after the last."""
        for step in reversed(range(len(self.taken))):
            later = np.flatnonzero(self.masses[step][self.taken[step] + 1 :])
            if later.size:
                return [*self.taken[:step], self.taken[step] + 1 + int(later[0])]
        return None


def enumerate_choices(run: Callable[[Chooser], Result]) -> Iterator[tuple[Result, float]]:
    """Run a random function once for every possible sequence of decisions.

    Parameters
    ----------
    run : callable
        Function of a `Chooser`; it must use no other randomness.

    Yields
    ------
    result, probability : object, float
        Return value of `run` and the exact probability of its decisions; the probabilities sum to
        one.

    Notes
    -----
    One call of `run` per leaf of the decision tree.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp import decode
    >>> coin = np.array([0.5, 0.5])
    >>> runs = decode.enumerate_choices(lambda chooser: chooser.choose(coin) + chooser.choose(coin))
    >>> [(result, probability) for result, probability in runs]
    [(0, 0.25), (1, 0.25), (1, 0.25), (2, 0.25)]
    """
    script: list[int] | None = []
    while script is not None:
        replay = _ScriptedChooser(script)
        result = run(replay)
        yield result, replay.probability
        script = replay.next_script()
