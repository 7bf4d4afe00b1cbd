"""Plan as a table of conditionals, for small problems and for reference."""

from __future__ import annotations

import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray
from otlp.drafts import DraftTuples
from otlp.plan.plan import Marginals, Plan, enumerated_marginals
from otlp.problem import Problem


class TablePlan(Plan):
    """One conditional distribution for each tuple.

    A tuple whose probability underflows is not listed; its conditional is the target.

    Parameters
    ----------
    problem : Problem
    tuples : DraftTuples
        The m tuples of positive probability.
    conditionals : ndarray, shape (m, V)
        Row j is the distribution of the verified token given tuple j; nonnegative, sums to one.

    Examples
    --------
    >>> import numpy as np, otlp
    >>> from otlp.plan import TablePlan
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> tuples = problem.drafts.enumerate_tuples()
    >>> plan = TablePlan(problem, tuples, np.tile(problem.target, (9, 1)))  # ignores the drafts
    >>> plan.conditional([0, 1]).tolist()
    [0.1, 0.6, 0.3]
    """

    def __init__(self, problem: Problem, tuples: DraftTuples, conditionals: FloatArray) -> None:
        super().__init__(problem)
        self.tuples = tuples
        self.conditionals = conditionals

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Look up the distribution of the verified token; see `Plan.conditional`."""
        found = self.tuples.find(self._check(draft_tokens))
        result = self.problem.target if found < 0 else self.conditionals[found]
        return result.copy()

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution, summed over all tuples; O(m V)."""
        tokens = self.tuples.tokens
        mass = self.problem.drafts.probability(tokens)
        return enumerated_marginals(DraftTuples(tokens, mass), self.conditionals)
