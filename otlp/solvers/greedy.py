"""The optimal plan for greedy drafts, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from otlp.capability import Capability, supported_if
from otlp.certificate import Answer
from otlp.drafts import Greedy
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import ClosedForm
from otlp.solvers.speculative_sampling import SpeculativeSamplingPlan
from otlp.timing import Stopwatch


@dataclass(frozen=True)
class GreedySolver(ClosedForm):
    """Single-draft speculative sampling on the sampled draft of `otlp.Greedy`.

    The sampled draft x follows q~, the draft without the top tokens A.  Accept x with probability
    min(1, p_x / q~_x), else sample from (p - q~)^+ normalised.  Samples in A were also drafted, so
    the acceptance is p(A) + sum over i outside A of min(p_i, q~_i), the optimum (Hu et al. 2025).
    O(V).

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.Greedy([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.solve(problem, "greedy").acceptance, 6)
    1.0
    """

    name: ClassVar[str] = "greedy"

    def supports(self, problem: Problem) -> Capability:
        """Support greedy drafts."""
        check_problem(problem)
        return supported_if(
            isinstance(problem.drafts, Greedy),
            "the drafts must be the n - 1 most likely tokens and one sampled token (otlp.Greedy), "
            f"got {problem.drafts}; use orderings, or martingale for i.i.d. drafts",
        )

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the plan."""
        drafts = problem.drafts
        assert isinstance(drafts, Greedy)
        plan = SpeculativeSamplingPlan(problem, drafts.n - 1, drafts.rest, drafts.top)
        return Answer(plan, Guarantee.OPTIMAL)
