"""What every reduction answers: a problem one way, a plan and its proof on the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from otlp.checks import is_a

Primal = TypeVar("Primal")
Dual = TypeVar("Dual")
Source = TypeVar("Source")
Result = TypeVar("Result")
Inverse = TypeVar("Inverse")


class PrimalDual(NamedTuple, Generic[Primal, Dual]):
    """An answer that travels back through reductions: a solution and its proof.

    Attributes
    ----------
    primal
        Of a `Problem`: a `Plan`.  Of a relaxed OTLP: S, shape (nnz,).  Of a network: the flow on
        each arc.  Of a linear program: its variables.
    dual : ndarray, optional
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

    primal: Primal
    dual: Dual | None = None


class Reduction(ABC, Generic[Source, Result, Inverse]):
    """A pure map of problems with a way back for their answers.

    A subclass defines `reduce` and `lift`.  `apply` and `invert` call them, and refuse objects of
    other types first.  Docstrings of reductions state: *Source*, *Result*, what *Survives* (value,
    plan, dual), and the *Cost*.

    Attributes
    ----------
    takes, gives, keeps : type
        Of the source, of the result, and of the way back that `reduce` returns.
    part : str
        The part of `otlp.timing.Timings` that solvers charge `reduce` to: "reduce", or "build"
        where the result is the input of an engine.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> reduction = reductions.MergeTuples()
    >>> isinstance(reduction, reductions.Reduction)
    True
    """

    takes: type = object
    gives: type = object
    keeps: type = object
    part: ClassVar[str] = "reduce"

    @abstractmethod
    def reduce(self, source: Source) -> tuple[Result, Inverse]:
        """Reduce, and return beside the result what the way back needs."""

    @abstractmethod
    def lift(self, answer: PrimalDual[Any, Any], inverse: Inverse) -> PrimalDual[Any, Any]:
        """Turn an answer to the result into an answer to the source."""

    def apply(self, source: Source) -> tuple[Result, Inverse]:
        """Return the reduced problem, and the way back for `invert`.

        Raises
        ------
        InvalidInputError
            If the source is of another type.
        """
        is_a(source, self.takes, "source")
        return self.reduce(source)

    def invert(self, answer: PrimalDual[Any, Any], inverse: Inverse) -> PrimalDual[Any, Any]:
        """Return the answer to the source, from one to the result.

        Raises
        ------
        InvalidInputError
            If the answer is no `PrimalDual`, or `apply` did not return the inverse.
        """
        is_a(answer, PrimalDual, "answer")
        is_a(inverse, self.keeps, "inverse")
        return self.lift(answer, inverse)
