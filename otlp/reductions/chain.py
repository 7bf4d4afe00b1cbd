"""Chain of reductions, which is a reduction itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from otlp.checks import is_a
from otlp.errors import InvalidInputError
from otlp.reductions.reduction import PrimalDual, Reduction


class Chain(Reduction[Any, Any, tuple[Any, ...]]):
    """Apply reductions one after the other, and invert them in the opposite order.

    Source: the source of the first reduction.
    Result: the result of the last reduction.
    Survives: whatever survives all reductions.
    Cost: the sum of the costs of the reductions.

    Parameters
    ----------
    *reductions : Reduction
        Reductions in order; each must accept the result of the one before.  A chain is replaced by
        its reductions.

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
        for link in reductions:
            is_a(link, Reduction, "a link of the chain")
            self.reductions += link.reductions if isinstance(link, Chain) else (link,)
        for before, after in pairwise(self.reductions):
            if before.gives is not object and not issubclass(before.gives, after.takes):
                raise InvalidInputError(
                    f"{type(after).__name__} must accept the result of {type(before).__name__}, "
                    f"{before.gives.__name__}, but accepts {after.takes.__name__}: change the "
                    "order of the links"
                )
        if self.reductions:
            self.takes, self.gives = self.reductions[0].takes, self.reductions[-1].gives

    def reduce(
        self, source: Any, charge: Callable[[str], None] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Reduce step by step; `charge` is called after each step, with the `part` of the step."""
        inverses = []
        for reduction in self.reductions:
            source, inverse = reduction.reduce(source)
            inverses.append(inverse)
            if charge is not None:
                charge(reduction.part)
        return source, tuple(inverses)

    def lift(self, answer: PrimalDual[Any, Any], inverse: tuple[Any, ...]) -> PrimalDual[Any, Any]:
        """Invert step by step."""
        for reduction, step in zip(self.reductions[::-1], inverse[::-1], strict=True):
            answer = reduction.lift(answer, step)
        return answer

    def invert(
        self, answer: PrimalDual[Any, Any], inverse: tuple[Any, ...]
    ) -> PrimalDual[Any, Any]:
        """Invert step by step, with the inverse that `apply` returned; see `Reduction.invert`."""
        is_a(answer, PrimalDual, "answer")
        is_a(inverse, tuple, "inverse")
        if len(inverse) != len(self.reductions):
            raise InvalidInputError(
                f"inverse must have {len(self.reductions)} steps, as the chain, got "
                f"{len(inverse)}: pass the inverse that apply returned"
            )
        for reduction, step in zip(self.reductions, inverse, strict=True):
            is_a(step, reduction.keeps, "inverse")
        return self.lift(answer, inverse)
