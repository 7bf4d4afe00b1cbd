"""A chain of reductions is a reduction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from otlp.checks import is_a
from otlp.errors import InvalidInputError
from otlp.reductions.reduction import PrimalDual, Reduction


class Chain(Reduction[Any, Any, tuple[Any, ...]]):
    """Apply reductions one after the other, and go back in the opposite order.

    Source: what the first reduction takes.
    Result: what the last one gives.
    Survives: what survives all of them.
    Cost: the sum of theirs.

    Parameters
    ----------
    *reductions : Reduction
        Each takes what the one before it gives; of a chain its own reductions.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> chain = reductions.Chain(reductions.Support(), reductions.MergeTuples())
    >>> relaxed, inverses = chain.apply(problem)
    >>> relaxed.groups.mass.size, len(inverses)
    (6, 2)
    """

    def __init__(self, *reductions: Reduction[Any, Any, Any]) -> None:
        self.reductions: tuple[Reduction[Any, Any, Any], ...] = ()
        for one in reductions:
            is_a(one, Reduction, "a link of the chain")
            self.reductions += one.reductions if isinstance(one, Chain) else (one,)
        for before, after in pairwise(self.reductions):
            if before.gives is not object and not issubclass(before.gives, after.takes):
                raise InvalidInputError(
                    f"{type(after).__name__} must take what {type(before).__name__} gives, a "
                    f"{before.gives.__name__}, got {after.takes.__name__}: put links that fit "
                    "behind one another"
                )
        if self.reductions:
            self.takes, self.gives = self.reductions[0].takes, self.reductions[-1].gives

    def reduce(
        self, source: Any, charge: Callable[[str], None] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Reduce step by step; `charge` is called with the `part` of each step after it."""
        inverses = []
        for reduction in self.reductions:
            source, inverse = reduction.reduce(source)
            inverses.append(inverse)
            if charge is not None:
                charge(reduction.part)
        return source, tuple(inverses)

    def lift(self, answer: PrimalDual[Any, Any], inverse: tuple[Any, ...]) -> PrimalDual[Any, Any]:
        """Go back step by step."""
        for reduction, step in zip(self.reductions[::-1], inverse[::-1], strict=True):
            answer = reduction.lift(answer, step)
        return answer

    def invert(
        self, answer: PrimalDual[Any, Any], inverse: tuple[Any, ...]
    ) -> PrimalDual[Any, Any]:
        """Go back step by step, from what `apply` returned; see `Reduction.invert`."""
        is_a(answer, PrimalDual, "answer")
        is_a(inverse, tuple, "inverse")
        if len(inverse) != len(self.reductions):
            raise InvalidInputError(
                f"inverse has {len(inverse)} steps, and the chain {len(self.reductions)}: pass "
                "what its own apply returned"
            )
        for reduction, step in zip(self.reductions, inverse, strict=True):
            is_a(step, reduction.keeps, "inverse")
        return self.lift(answer, inverse)
