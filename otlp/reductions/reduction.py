"""Base class of reductions, and the pair of a solution and its proof that they invert."""

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
    """A solution and its proof, which `Reduction.invert` maps back to the source.

    Attributes
    ----------
    primal
        The `Plan` of a `Problem`; S, shape (nnz,), of a relaxed OTLP; the flow on each arc of a
        network; or the variables of a linear program.
    dual : ndarray, optional
        For a `Problem` or a relaxed OTLP, the subset H of the upper bound, a mask of shape (V,).
        For a network, a mask of the nodes on the sink's side of the minimum cut.  For a linear
        program, the prices of its rows.  None if unknown.

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
    """A pure function from problems to problems, with an inverse for their answers.

    A subclass defines `reduce` and `lift`.  `apply` and `invert` first check the types of their
    arguments, then call `reduce` and `lift`.  Docstrings of reductions state *Source*, *Result*,
    what *Survives* (value, plan, dual), and *Cost*.

    Attributes
    ----------
    takes, gives, keeps : type
        Types of the source, of the result, and of the inverse that `reduce` returns.
    part : str
        Part of `otlp.timing.Timings` to which solvers add the time of `reduce`: "reduce", or
        "build" if the result is the input of an engine.

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
        """Return the reduced problem, and the inverse that `lift` needs."""

    @abstractmethod
    def lift(self, answer: PrimalDual[Any, Any], inverse: Inverse) -> PrimalDual[Any, Any]:
        """Map an answer for the result to an answer for the source."""

    def apply(self, source: Source) -> tuple[Result, Inverse]:
        """Return the reduced problem, and the inverse for `invert`.

        Raises
        ------
        InvalidInputError
            If the source has the wrong type.
        """
        is_a(source, self.takes, "source")
        return self.reduce(source)

    def invert(self, answer: PrimalDual[Any, Any], inverse: Inverse) -> PrimalDual[Any, Any]:
        """Return the answer for the source, from an answer for the result.

        Raises
        ------
        InvalidInputError
            If the answer is not a `PrimalDual`, or `apply` did not return the inverse.
        """
        is_a(answer, PrimalDual, "answer")
        is_a(inverse, self.keeps, "inverse")
        return self.lift(answer, inverse)
