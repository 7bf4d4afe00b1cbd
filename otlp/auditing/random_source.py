"""A NumPy generator whose draws use two primitives, which the enumeration implements."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from otlp.auditing.lazy_uniform import log
from otlp.distribution import FloatArray

LARGEST_RANGE = 100_000
"""Integers from a larger range are treated as seeds and end the enumeration."""

BITS = np.random.PCG64(0)
"""Bit generator that NumPy's Generator requires; draws from it bypass the source."""

_SCRATCH: Any = np.random.default_rng(0)
"""Used to check arguments with NumPy; its draws are discarded."""

_GENERATOR: Any = np.random.Generator


class RandomSource(_GENERATOR):  # type: ignore[misc]
    """The methods of NumPy's `Generator` that verification rules use, from two primitives.

    A subclass of `Generator`, so that ``np.random.default_rng(rng)`` and `isinstance` accept it;
    its own bit generator is never used.

    Attributes
    ----------
    generators : set
        PyTorch generators that the program passed to random functions.
    """

    def __init__(self) -> None:
        super().__init__(BITS)
        self.generators: set[object] = set()

    @abstractmethod
    def uniform_number(self) -> Any:
        """Return a uniform number on [0, 1)."""

    @abstractmethod
    def category(self, law: FloatArray) -> int:
        """Draw an index from a probability vector."""

    @abstractmethod
    def give_up(self, reason: str) -> NoReturn:
        """Abort the run: the program cannot be enumerated for this reason."""

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw uniform numbers on [0, 1), as `Generator.random`."""
        _SCRATCH.random(size, dtype)
        if out is not None:
            self.give_up("it calls rng.random with out=")
        return self._map(size, lambda number: number)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draw uniform numbers on [low, high), as `Generator.uniform`."""
        shape = _shape(_SCRATCH.uniform(low, high, size))
        width = np.subtract(high, low) if shape else high - low
        return low + width * self.random(shape)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        """Draw waiting times of rate 1, as `Generator.standard_exponential`."""
        _SCRATCH.standard_exponential(size, dtype, method)
        if out is not None:
            self.give_up("it calls rng.standard_exponential with out=")
        return self._map(size, lambda number: -log(number))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw waiting times of mean `scale`, as `Generator.exponential`."""
        shape = _shape(_SCRATCH.exponential(scale, size))
        return scale * self.standard_exponential(shape)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw Gumbel numbers, as `Generator.gumbel`."""
        shape = _shape(_SCRATCH.gumbel(loc, scale, size))
        return loc + scale * self._map(shape, lambda number: -log(-log(number)))

    def _map(self, size: Any, function: Callable[[Any], Any]) -> Any:
        if size is None:
            return function(self.uniform_number())
        shape = np.empty(size).shape
        numbers = [function(self.uniform_number()) for _ in range(math.prod(shape))]
        return np.array(numbers).reshape(shape)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Draw integers from a range, as `Generator.integers`."""
        _SCRATCH.integers(low, high, size, dtype, endpoint)
        if np.ndim(low) or np.ndim(high):
            self.give_up("it calls rng.integers with an array of ranges")
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
        """Draw from a population, as `Generator.choice`, with the same errors."""
        _SCRATCH.choice(a, size, replace, p, axis, shuffle)
        population = np.asarray(np.arange(a) if np.ndim(a) == 0 else a)
        if axis != 0:
            self.give_up("it calls rng.choice with axis=")
        if not (replace or shuffle):
            self.give_up("it calls rng.choice with shuffle=False, whose order is not specified")
        weights = np.ones(len(population)) if p is None else np.array(p, dtype=np.float64)
        if size is None:
            return population[self.category(weights / weights.sum())]
        shape = np.empty(size).shape
        chosen = []
        for _ in range(math.prod(shape)):
            chosen.append(self.category(weights / weights.sum()))
            if not replace:
                weights[chosen[-1]] = 0.0
        return population[np.array(chosen, dtype=np.int64).reshape(shape)]

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        """Draw counts, as `Generator.multinomial`: the last category has the remaining mass."""
        _SCRATCH.multinomial(n, pvals)
        law = np.array(pvals, dtype=np.float64)
        if size is not None or law.ndim != 1:
            self.give_up("it calls rng.multinomial with an array of laws or with size=")
        law[-1] = max(0.0, 1.0 - float(law[:-1].sum()))
        law /= law.sum()
        counts = np.zeros(law.size, dtype=np.int64)
        for _ in range(n):
            counts[self.category(law)] += 1
        return counts

    def binomial(self, n: int, p: float, size: Any = None) -> Any:
        """Draw the number of successes in n trials, as `Generator.binomial`."""
        _SCRATCH.binomial(n, p)
        if size is not None or np.ndim(n) or np.ndim(p):
            self.give_up("it calls rng.binomial with an array or with size=")
        return sum(self.category(np.array([1.0 - p, p])) for _ in range(n))

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Draw a random permutation, as `Generator.permutation`."""
        return self.choice(x, x if np.ndim(x) == 0 else len(x), replace=False, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Shuffle in place, as `Generator.shuffle`."""
        x[:] = self.permutation(np.array(x), axis)


def _shape(drawn: Any) -> Any:
    """Return the shape of an array; None for a scalar."""
    return getattr(drawn, "shape", None)


def _unsupported(name: str) -> property:
    def give_up(source: RandomSource) -> NoReturn:
        source.give_up(f"it uses rng.{name}, which has no finite set of outcomes")

    return property(give_up)


_COPIES = ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__")
_PUBLIC = (name for name in dir(np.random.Generator) if not name.startswith("_"))
for _name in {*_PUBLIC, *_COPIES} - vars(RandomSource).keys():
    setattr(RandomSource, _name, _unsupported(_name))
