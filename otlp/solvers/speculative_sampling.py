"""Speculative sampling with a single draft, an optimal closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.capability import Capability, supported_if
from otlp.certificate import Answer
from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, IntArray
from otlp.plan import Marginals, SelectionPlan
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import ClosedForm
from otlp.timing import Stopwatch


class SpeculativeSamplingPlan(SelectionPlan):
    """Accept the drafted token x at one position with probability min(1, p_x / y_x), else replace.

    Parameters
    ----------
    problem : Problem
    place : int
        Position of x in the drafted tuple.
    distribution : ndarray, shape (V,)
        Distribution y of x.
    certain : ndarray of int64
        Tokens at the other positions, if every tuple has the same ones; a replacement in this set
        counts as accepted.
    """

    def __init__(
        self, problem: Problem, place: int, distribution: FloatArray, certain: IntArray
    ) -> None:
        super().__init__(problem, distribution)
        self.place = place
        self.certain = certain

    def select(self, draft_tokens: IntArray, rng: np.random.Generator) -> int:
        """Return the token at the position `place`."""
        return int(draft_tokens[self.place])

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the tokens at the position `place`."""
        return tokens[:, self.place]

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the distribution of the selected token, a point mass."""
        return draft_tokens[self.place, None], np.ones(1)

    def realised_selection_distribution(self) -> FloatArray:
        """Return the distribution of the token at the position `place`."""
        return self.selection_distribution

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance, including drafted replacements, and output distribution; O(V)."""
        selected = super().marginals()
        # A rejected x is never its own replacement, because the residual is zero at x.
        accepted = selected.acceptance.copy()
        accepted[self.certain] = selected.output[self.certain]
        return Marginals(accepted, selected.output, selected.method)


@dataclass(frozen=True)
class SpeculativeSampling(ClosedForm):
    """Accept the draft x with probability min(1, p_x / q_x), else sample from (p - q)^+ normalised.

    Leviathan et al. 2023, Chen et al. 2023 (Global Resolution, Appendix A).  The acceptance is
    sum min(p, q), the optimum for one draft; O(V).

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=1))
    >>> round(otlp.solve(problem, "speculative-sampling").acceptance, 6)
    0.6
    """

    name: ClassVar[str] = "speculative-sampling"

    def supports(self, problem: Problem) -> Capability:
        """Support one draft of any scheme."""
        check_problem(problem)
        return supported_if(
            problem.n == 1,
            f"n must be 1, got n = {problem.n}; use recursive-rejection, or an optimal solver such "
            "as orderings",
        )

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the plan."""
        nothing = np.zeros(0, dtype=np.int64)
        draft = problem.drafts.mean_draft
        plan = SpeculativeSamplingPlan(problem, 0, draft, nothing)
        # The bound p(H) + 1 - q(H) is smallest for the tokens with p < q.
        return Answer(plan, Guarantee.OPTIMAL, problem.target < draft)
