"""Random choices as a protocol, so that one piece of code can be sampled or enumerated.

Drafting and verification take every random decision through a `Chooser`.  `RandomChooser` draws;
`enumerate_choices` replays the same code once for every sequence of decisions and gives each its
exact probability.  What is proved by enumeration is therefore the code that runs in production.
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
    """Takes random decisions.

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
            Nonnegative, with a positive sum that need not be one.

        Returns
        -------
        int
            Never an index of mass zero.
        """

    def accept(self, probability: float) -> bool:
        """Say yes with this probability."""
        return self.choose(np.array([probability, 1.0 - probability])) == 0

    def draws(self, distribution: FloatArray, n: int) -> IntArray:
        """Draw n i.i.d. tokens from a distribution of shape (V,)."""
        return np.array([self.choose(distribution) for _ in range(n)], dtype=np.int64)


class RandomChooser(Chooser):
    """Takes decisions with a random generator.

    Parameters
    ----------
    rng : numpy.random.Generator

    Raises
    ------
    InvalidInputError
        If it is something else.

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
        """Choose by inversion; O(m)."""
        return int(invert_cdf(np.cumsum(masses), self.rng.random()))

    def accept(self, probability: float) -> bool:
        """Say yes with this probability; O(1)."""
        return bool(self.rng.random() < probability)

    def draws(self, distribution: FloatArray, n: int) -> IntArray:
        """Draw n i.i.d. tokens; O(V + n log V)."""
        return invert_cdf(np.cumsum(distribution), self.rng.random(n))


class _ScriptedChooser(Chooser):
    """Follows a script of decisions, then takes the first possible one at each new decision."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.taken: list[int] = []
        self.masses: list[FloatArray] = []
        self.probability = 1.0

    def choose(self, masses: FloatArray) -> int:
        at = len(self.taken)
        index = self.script[at] if at < len(self.script) else int(np.argmax(masses > 0.0))
        self.taken.append(index)
        self.masses.append(masses)
        self.probability *= float(masses[index] / masses.sum())
        return index

    def next_script(self) -> list[int] | None:
        """Decisions of the next branch in depth-first order; None after the last."""
        for at in reversed(range(len(self.taken))):
            later = np.flatnonzero(self.masses[at][self.taken[at] + 1 :])
            if later.size:
                return [*self.taken[:at], self.taken[at] + 1 + int(later[0])]
        return None


def enumerate_choices(run: Callable[[Chooser], Result]) -> Iterator[tuple[Result, float]]:
    """Run a random function once for every sequence of decisions it can take.

    Parameters
    ----------
    run : callable
        Takes a `Chooser`; may depend on nothing random but its decisions.

    Yields
    ------
    result, probability : object, float
        What `run` returned, and the exact probability of the decisions that led there; the
        probabilities sum to one.

    Notes
    -----
    One run a leaf of the tree of decisions.

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
