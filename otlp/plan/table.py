"""A plan written out tuple by tuple: for small problems and for reference."""

from __future__ import annotations

from functools import cached_property

import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.drafts import DraftTuples
from otlp.errors import ZeroProbabilityError
from otlp.plan.plan import Marginals, Plan, enumerated_marginals
from otlp.problem import Problem

__all__ = ["TablePlan"]


class TablePlan(Plan):
    """One slice for each tuple.

    Parameters
    ----------
    problem : Problem
    tuples : DraftTuples
        The tuples of positive probability, m of them.
    slices : ndarray, shape (m, V)
        Row j is the law of the verified token given tuple j; nonnegative, sums to one.
    """

    def __init__(self, problem: Problem, tuples: DraftTuples, slices: FloatArray) -> None:
        super().__init__(problem)
        self.tuples = tuples
        self.slices = slices

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {row.tobytes(): j for j, row in enumerate(self.tuples.tokens)}

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan, by look-up; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        index = self._index.get(tokens.tobytes())
        if index is None:
            raise ZeroProbabilityError(
                f"draft_tokens {tokens.tolist()} are not listed: their probability underflows"
            )
        law: FloatArray = self.slices[index].copy()
        return law

    def marginals(self) -> Marginals:
        """Acceptance and output law, summed over all tuples; O(m V)."""
        return enumerated_marginals(self.tuples, self.slices)
