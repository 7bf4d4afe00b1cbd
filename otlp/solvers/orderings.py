"""The optimal plan for any draft scheme, as a mixture of priority orderings."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.certificate import Answer
from otlp.checks import check_time_limit, own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf, sum_by
from otlp.numerics.minimum_norm import minimum_norm
from otlp.plan import Marginals, SelectionPlan
from otlp.problem import Problem
from otlp.reductions import PrimalDual, Support
from otlp.solution import Guarantee, Status
from otlp.solvers.gap_solver import GapSolver, claim
from otlp.timing import Stopwatch, deadline

ENUMERATION_LIMIT = 1e5
"""Maximum of members of all token sets times orderings for an enumeration of the acceptance."""

STATUS = {
    "gap": Status.SOLVED,
    "iterations": Status.ITERATION_LIMIT,
    "time": Status.TIME_LIMIT,
    "rounding": Status.ITERATION_LIMIT,
}


class OrderingsPlan(SelectionPlan):
    """Draw an ordering of the tokens and select the drafted token that is first in the ordering.

    Every selection that a draft scheme allows is such a mixture of orderings.

    Parameters
    ----------
    problem : Problem
    weights : ndarray, shape (R,)
        Probabilities of the orderings.
    orders : ndarray of int, shape (R, V)
        Permutations of the tokens, highest priority first.
    selection_distribution : ndarray, shape (V,)
        Distribution of the selected token under the mixture.

    Notes
    -----
    O(RV) memory; O(log R + n) to select, O(Rn) for `selection`.

    If the mixture is not optimal, the replacement of a rejected token may be another drafted token.
    `marginals` includes this if all token sets can be listed; otherwise its acceptance is that of
    the selected token, a lower bound that is too low by at most the gap.
    """

    def __init__(
        self,
        problem: Problem,
        weights: FloatArray,
        orders: npt.NDArray[np.integer],
        selection_distribution: FloatArray,
    ) -> None:
        super().__init__(problem, selection_distribution)
        self.weights = weights / weights.sum()
        self.ranks: npt.NDArray[np.int32] = np.empty(orders.shape, dtype=np.int32)
        places = np.arange(problem.vocab_size, dtype=np.int32)
        for ranks, order in zip(self.ranks, orders, strict=True):
            ranks[order] = places
        self._cumulative = np.cumsum(self.weights)

    def select_many(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw an ordering for each tuple and select its first drafted token."""
        chosen = invert_cdf(self._cumulative, rng.random(len(tokens)))
        first = np.argmin(self.ranks[chosen[:, None], tokens], axis=1)
        selected: IntArray = tokens[np.arange(len(tokens)), first]
        return selected

    def selection(self, draft_tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the distribution of the selected token: weights of orderings where it is first."""
        tokens = np.unique(draft_tokens)
        first = np.argmin(self.ranks[:, tokens], axis=1).astype(np.int64)
        return tokens, sum_by(first, self.weights, tokens.size)

    @own_float_errors
    def realised_selection_distribution(self) -> FloatArray:
        """Compute the mixture of the priority marginals of the stored orderings; O(R) passes."""
        result = np.zeros(self.problem.vocab_size)
        order = np.empty(self.problem.vocab_size, dtype=np.int64)
        places = np.arange(self.problem.vocab_size)
        for weight, ranks in zip(self.weights, self.ranks, strict=True):
            order[ranks] = places
            result += weight * self.problem.drafts.priority_marginals(order)
        return result

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance and output distribution; see the notes of the class."""
        if self.problem.drafts.set_count()[1] * self.weights.size > ENUMERATION_LIMIT:
            return super().marginals()
        sets = self.problem.drafts.enumerate_sets()
        rejected = np.zeros(len(sets))
        for weight, ranks in zip(self.weights, self.ranks, strict=True):
            least = np.minimum.reduceat(ranks[sets.members], sets.offsets[:-1])
            first = np.argsort(ranks)[least]
            rejected += weight * (1.0 - self.accept[first])
        return self._with_drafted_replacements(sets, rejected)


@dataclass(frozen=True)
class Orderings(GapSolver):
    """Compute the best mixture of priority orderings with Wolfe's minimum-norm-point algorithm.

    The plan is lossless after every iteration, and each iteration includes a bound on the gap.

    Parameters
    ----------
    gap : float
        Optimality gap at which to stop.
    max_iterations : int
        Maximum number of orderings.
    time_limit : float, optional
        Time limit in seconds, including the verifier; when it is reached, the status is
        `Status.TIME_LIMIT` with the current plan, or without a plan before the first ordering.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    See `otlp.numerics.minimum_norm`.  Each ordering costs a sort and a pass of the scheme over all
    tokens; O(RV) memory for R orderings.  R grows with the number of relevant tokens and with the
    accuracy; R is largest if the optimum is nearly 1.

    Examples
    --------
    >>> import otlp
    >>> drafts = otlp.Independent([[0.15, 0.01, 0.84, 0.0], [0.07, 0.65, 0.07, 0.21]])
    >>> solution = otlp.solve(otlp.Problem([0.14, 0.68, 0.02, 0.16], drafts), "orderings")
    >>> round(solution.acceptance, 4), solution.subset.nonzero()[0].tolist()
    (0.9448, [2, 3])
    """

    name: ClassVar[str] = "orderings"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check_time_limit(self.time_limit)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Compute the mixture on the tokens that can be drafted."""
        small, inverse = Support().reduce(problem)
        drafts = small.drafts
        clock.charge("reduce")
        try:
            with deadline(self.time_limit):
                found = minimum_norm(
                    small.target,
                    drafts.mean_draft,
                    drafts.priority_marginals,
                    self.gap,
                    self.max_iterations,
                )
        except TimeoutError as late:
            raise TimeoutError(f"{late}, before the first ordering") from late
        clock.charge("solve")
        plan = OrderingsPlan(small, found.weights, found.orders, found.selection_distribution)
        lifted, subset = Support().lift(PrimalDual(plan, found.subset), inverse)
        clock.charge("recover")
        message = ""
        if found.stopped != "gap":
            message = (
                f"stopped at a gap of {found.gap:.3g} after {found.iterations} orderings, above "
                f"gap = {self.gap:.3g} ({found.stopped}); the plan is lossless"
            )
        return Answer(
            lifted,
            claim(found.gap),
            subset,
            STATUS[found.stopped],
            message,
            {"orderings": found.weights.size, "iterations": found.iterations},
        )


def better_of_orderings(
    answer: Answer, problem: Problem, gap: float, max_iterations: int, clock: Stopwatch
) -> Answer:
    """Return the better of a lossless answer and the answer of `Orderings`.

    An optimal answer is better than one that is not proved, although drafted replacements may give
    both the same acceptance.
    """
    with suppress(TimeoutError):
        return max(answer, Orderings(gap, max_iterations).answer(problem, clock), key=_quality)
    return answer


def _quality(answer: Answer) -> tuple[Guarantee, float]:
    assert answer.plan is not None and answer.claim is not None
    return answer.claim, float(answer.plan.marginals().acceptance.sum())
