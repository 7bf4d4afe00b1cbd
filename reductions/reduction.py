"""What every reduction answers: a problem one way, a plan and its proof on the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

Source = TypeVar("Source")
Result = TypeVar("Result")


class PrimalDual(NamedTuple):
    """An answer that travels back through reductions: a solution and its proof.

    Attributes
    ----------
    primal
        Of a `Problem`: a `Plan`.  Of a relaxed OTLP: S, shape (nnz,).  Of a network: the flow on
        each arc.  Of a linear program: its variables.
    dual
        Of a `Problem` or a relaxed OTLP: the subset H behind the upper bound, a mask of shape
        (V,).  Of a network: its nodes on the sink's side of the minimum cut, a mask.  Of a linear
        program: the prices of its rows.  None where it is not known.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> small, inverse = reductions.Support().apply(problem)
    >>> solution = otlp.solve(small)
    >>> answer = reductions.PrimalDual(solution.plan, solution.subset)
    >>> reductions.Support().invert(answer, inverse).dual.tolist()
    [True, False, False]
    """

    primal: Any
    dual: Any = None


class Reduction(ABC, Generic[Source, Result]):
    """A pure map of problems with a way back for their answers.

    Docstrings of reductions state: *Source*, *Result*, what *Survives* (value, plan, dual), and
    the *Cost*.

    Attributes
    ----------
    part : str
        The part of `otlp.timing.Timings` that solvers charge `apply` to: "reduce", or "build"
        where the result is what an engine is given.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> reduction = reductions.MergeTuples()
    >>> isinstance(reduction, reductions.Reduction)
    True
    """

    part: ClassVar[str] = "reduce"

    @abstractmethod
    def apply(self, source: Source) -> tuple[Result, Any]:
        """Reduce, and return beside the result what the way back needs."""

    @abstractmethod
    def invert(self, answer: PrimalDual, inverse: Any) -> PrimalDual:
        """Turn an answer to the result into an answer to the source."""
