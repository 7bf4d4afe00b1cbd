"""What every reduction answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from otlp.errors import Capability

__all__ = ["Reduction"]

Source = TypeVar("Source")
Result = TypeVar("Result")
Inverse = TypeVar("Inverse")
ResultAnswer = TypeVar("ResultAnswer")
SourceAnswer = TypeVar("SourceAnswer")


class Reduction(ABC, Generic[Source, Result, Inverse, ResultAnswer, SourceAnswer]):
    """A pure map of problems with a way back for their answers.

    Docstrings of reductions state: *Source*, *Result*, what *Survives* (value, plan, dual), and
    the *Cost*.
    """

    @abstractmethod
    def accepts(self, source: Source) -> Capability:
        """Whether the reduction applies, or the reason why not; cheap."""

    @abstractmethod
    def apply(self, source: Source) -> tuple[Result, Inverse]:
        """Reduce, and keep in `Inverse` (a frozen record) what the way back needs."""

    @abstractmethod
    def invert(self, answer: ResultAnswer, inverse: Inverse) -> SourceAnswer:
        """Turn an answer to the result into an answer to the source."""
