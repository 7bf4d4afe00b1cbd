"""Single-draft speculative sampling on one place of the drafted tuple."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.plan.plan import Marginals
from otlp.plan.selection import SelectionPlan
from otlp.problem import Problem

__all__ = ["SingleDraftPlan"]


class SingleDraftPlan(SelectionPlan):
    """Accept the token x at one place with probability min(1, p_x / y_x), else replace it.

    Parameters
    ----------
    problem : Problem
    place : int
        Which of the drafted tokens is x.
    law : ndarray, shape (V,)
        The law y of x.
    certain : ndarray of int64
        Tokens other than x that every tuple has at the other places, if these are always the
        same; a replacement may be one of them, and then counts as accepted.
    """

    def __init__(self, problem: Problem, place: int, law: FloatArray, certain: IntArray) -> None:
        super().__init__(problem, law)
        self.place = place
        self.certain = certain

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Return the token at the place."""
        return int(draft_tokens[self.place])

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Law of the selected token: certainty."""
        return draft_tokens[self.place, None], np.ones(1)

    def realised_selection_law(self) -> FloatArray:
        """Return the law of the token at the place."""
        return self.selection_law

    def marginals(self) -> Marginals:
        """Acceptance, with the replacements that were drafted, and output law; O(V)."""
        selected = super().marginals()
        # A rejected x is never its own replacement: the residual is zero at x.
        accepted = selected.acceptance.copy()
        accepted[self.certain] = selected.output[self.certain]
        return Marginals(accepted, selected.output, selected.method)
