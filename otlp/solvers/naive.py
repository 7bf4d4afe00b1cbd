"""Naive speculative sampling: sample from the target and accept if the token was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.certificate import Answer
from otlp.checks import check_generator, own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.plan import Marginals, Plan
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import ClosedForm
from otlp.timing import Stopwatch


class NaivePlan(Plan):
    """Plan that samples from the target, independently of the drafts."""

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return a copy of the target."""
        self._check(draft_tokens)
        return self.problem.target.copy()

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw a token from the target."""
        self._check(draft_tokens)
        check_generator(rng)
        return int(invert_cdf(np.cumsum(self.problem.target), rng.random()))

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`."""
        return invert_cdf(np.cumsum(self.problem.target), rng.random(len(tokens)))

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return the acceptance p_i P(i was drafted) and the target."""
        target = self.problem.target
        return Marginals(target * self.problem.drafts.inclusion, target, "closed form")


@dataclass(frozen=True)
class Naive(ClosedForm):
    """Naive speculative sampling (NSS; Miao et al. 2024, SpecInfer): any drafts, no optimality.

    The acceptance is sum p_i P(i was drafted); O(V), or O(nV) for different drafts.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.solve(problem, "naive").acceptance, 6)
    0.489
    """

    name: ClassVar[str] = "naive"

    def work(self, problem: Problem) -> float:
        """Return the vocabulary size times the number of drafts."""
        check_problem(problem)
        return float(problem.vocab_size) * problem.n

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the plan; the verifier computes the bound."""
        return Answer(NaivePlan(problem), Guarantee.LOSSLESS)
