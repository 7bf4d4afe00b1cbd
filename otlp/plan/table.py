"""A plan written out tuple by tuple: for small problems and for reference."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray
from otlp.drafts import DraftTuples
from otlp.plan.plan import Marginals, Plan
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
        law: FloatArray = self.slices[self._index[self._check(draft_tokens).tobytes()]].copy()
        return law

    def marginals(self) -> Marginals:
        """Acceptance and output law, summed over all tuples; O(m V).

        The slack is what negative entries and sums other than one amount to: what is sampled
        then follows no slice.
        """
        joint = self.slices * self.tuples.mass[:, None]
        every = np.arange(len(joint))[:, None]
        drafted = np.zeros(joint.shape, dtype=bool)
        drafted[every, self.tuples.tokens] = True
        accepted = np.where(drafted, joint, 0.0)
        defects = np.abs(self.slices.sum(axis=1) - 1.0) - 2.0 * np.minimum(self.slices, 0.0).sum(
            axis=1
        )
        slack = float(self.tuples.mass @ defects)
        return Marginals(accepted.sum(axis=0), joint.sum(axis=0), "enumerated", slack)
