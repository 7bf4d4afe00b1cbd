"""SpecInfer's recursive rejection sampling: the drafts in turn, each against what is left."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.certificate import Answer
from otlp.checks import (
    check_generator,
    check_number,
    check_time_limit,
    own_float_errors,
    whole_number,
)
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import WithoutReplacement
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.positive_part import positive_part
from otlp.plan import Marginals, Plan
from otlp.plan.plan import first_accepted, residual_distribution
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.rejections import all_sequences, drawn_sequences, estimated
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch, checkpoint, deadline, seconds_left

MOST_NUMBERS = 1e9
"""Array entries that an estimate reads, where each step is over all tokens: some seconds."""

RENORMALISE_BELOW = 1e-3
"""A residual of less mass is normalised, so that nothing underflows that is not tiny itself."""

NUMBERS_A_STEP = 32.0
"""Array entries that are read in the time of a compiled step."""

LEAST_SEQUENCES = 100
"""Sequences that an estimate draws at least."""

LEAST_DRAFT = 1e-300
"""Where some q is less, each step normalises: the reciprocal of the mass left could overflow."""


class _Residual:
    """The residual of the target after rejections: ``weights / total``, shape (V,)."""

    def __init__(self, target: FloatArray) -> None:
        self.weights, self.total = target, 1.0

    def chance(self, token: int, draft: FloatArray, mass: float) -> float:
        """Probability min(1, r/q) of accepting a token, for the draft q = draft / mass."""
        wanted, drawn = float(self.weights[token]) / self.total, float(draft[token]) / mass
        return 1.0 if wanted >= drawn else wanted / drawn

    def reject(self, draft: FloatArray, mass: float) -> None:
        """Leave (r - q)^+, up to its scale; nothing is left where rounding alone rejects."""
        weights, total = positive_part(1.0, self.weights, self.total / mass, draft)
        if 0.0 < total < RENORMALISE_BELOW:
            weights /= total
            total = 1.0
        if total > 0.0:
            self.weights, self.total = weights, total


class RejectionPlan(Plan):
    """Recursive rejection sampling: each draft against what the rejected ones left.

    Accept the j-th draft x with probability min(1, r_x / q_x) for its distribution q; if it is
    rejected, replace r by (r - q)^+ normalised.  At first r is the target; what remains after
    the last draft is the distribution of the replacement.  A rejected token is never put out
    later.  Whatever was rejected before, a step puts out r: hence lossless.
    """

    @abstractmethod
    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield the distribution of each draft given the earlier ones, as weights and their sum.

        Tokens that were rejected may keep their weight: nothing is left of them.
        """

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional distribution, O(nV); see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        result = np.zeros(self.problem.vocab_size)
        residual, reach = _Residual(self.problem.target), 1.0
        for token, (draft, mass) in zip(tokens.tolist(), self.next_drafts(tokens), strict=True):
            chance = residual.chance(token, draft, mass)
            result[token] += reach * chance
            reach *= 1.0 - chance
            if reach <= 0.0:
                return result
            residual.reject(draft, mass)
        result += (reach / residual.total) * residual.weights
        return result

    def first_draft(self) -> FloatArray:
        """Probability that the verified token is x and the first draft, shape (V,); O(V)."""
        first = self.problem.drafts.next_distribution(())
        assert first is not None, "there is a first draft"
        taken: FloatArray = np.minimum(self.problem.target, first)
        return taken

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Draw the verified token; O(V) for each rejected draft, no more for an accepted one."""
        check_generator(rng)
        tokens = self._check(draft_tokens)
        residual = _Residual(self.problem.target)
        for token, (draft, mass) in zip(tokens.tolist(), self.next_drafts(tokens), strict=True):
            if rng.random() < residual.chance(token, draft, mass):
                return int(token)
            residual.reject(draft, mass)
        return int(invert_cdf(np.cumsum(residual.weights), rng.random()))


class RecursiveRejectionPlan(RejectionPlan):
    """`RejectionPlan` for independent drafts (RRS).

    Parameters
    ----------
    problem : Problem
    drafts : ndarray, shape (n, V)
        The distributions q_1, ..., q_n.
    """

    def __init__(self, problem: Problem, drafts: FloatArray) -> None:
        super().__init__(problem)
        self.drafts = drafts

    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield q_1, ..., q_n."""
        for draft in self.drafts:
            yield draft, 1.0

    @own_float_errors
    def marginals(self) -> Marginals:
        """Acceptance and output distribution; O(nV)."""
        accepted, left = rows = np.empty((2, self.problem.vocab_size))
        accepted[:], left[:] = 0.0, self.problem.target
        reach, total = 1.0, 1.0
        for draft in self.drafts:
            missed, total = _take(rows, total, draft, reach)
            reach *= missed
        left *= reach / total
        left += accepted
        return Marginals(accepted, left, "closed form")

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`: what is left after each rejection is the same for all tuples."""
        residual, coins = _Residual(self.problem.target), []
        for column, draft in zip(tokens.T, self.drafts, strict=True):
            wanted, drawn = residual.weights[column] / residual.total, draft[column]
            coins.append(np.divide(wanted, drawn, out=np.ones(column.size), where=wanted < drawn))
            residual.reject(draft, 1.0)
        law = residual.weights / residual.total
        return first_accepted(tokens, np.stack(coins, axis=1), law, rng)


@compiled(fastmath=WITHOUT_NAN, error_model="numpy")
def _take(rows: FloatArray, total: float, draft: FloatArray, reach: float) -> tuple[float, float]:
    """Add what one draft accepts, and take it off what is left of the target.

    Parameters
    ----------
    rows : ndarray, shape (2, V)
        What is accepted, and what is left, up to its `total`; overwritten.
    reach : float
        The probability that this draft is looked at.

    Returns
    -------
    missed, total : float
        The probability that the draft is rejected, and the new total.
    """
    accepted, left = rows
    missed = rest = 0.0
    for x in range(draft.size):
        wanted = left[x] / total
        taken = min(wanted, draft[x])
        accepted[x] += reach * taken
        missed += draft[x] - taken
        left[x] = wanted - taken
        rest += wanted - taken
    # where nothing is left, nothing is missed but for rounding
    return missed, rest if rest > 0.0 else 1.0


class SequentialRejectionPlan(RejectionPlan):
    """`RejectionPlan` for drafts that depend on the earlier ones.

    Parameters
    ----------
    problem : Problem
    samples : int
        Where positive, the acceptance is estimated from that many sequences of rejected tokens;
        0 sums over all of them.
    seed : int
        Of the estimate.
    time_limit : float or None
        See `RecursiveRejection`.
    """

    def __init__(self, problem: Problem, samples: int, seed: int, time_limit: float | None) -> None:
        super().__init__(problem)
        self.samples, self.seed, self.time_limit = samples, seed, time_limit

    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield what the scheme says (`DraftScheme.next_distribution`)."""
        for place in range(draft_tokens.size):
            yield self._next(draft_tokens[:place]), 1.0

    @own_float_errors
    def marginals(self) -> Marginals:
        """Acceptance and output distribution over sequences of rejected tokens; O(V) a step."""
        with deadline(self.time_limit):
            return self._drawn() if self.samples else self._enumerated()

    def _enumerated(self) -> Marginals:
        """Sum over all sequences, or draw the fewest where that is not done in time."""
        accepted, replaced = np.zeros((2, self.problem.vocab_size))
        nothing = np.empty(0, dtype=np.int64)
        try:
            self._follow(nothing, self.problem.target, 1.0, accepted, replaced)
        except TimeoutError:
            return self._drawn()
        return Marginals(accepted, accepted + replaced, "enumerated")

    def _drawn(self) -> Marginals:
        """Draw `samples` sequences; fewer, but some, where V is large or time is over."""
        accepted, replaced = np.zeros((2, self.problem.vocab_size))
        most = int(MOST_NUMBERS / (self.problem.n * self.problem.vocab_size))
        rng, missed = np.random.default_rng(self.seed), list[float]()
        while len(missed) < LEAST_SEQUENCES or (
            len(missed) < min(self.samples, most) and seconds_left() > 0.0
        ):
            missed.append(self._follow_drawn(rng, accepted, replaced))
        accepted, replaced = accepted / len(missed), replaced / len(missed)
        return estimated(accepted, accepted + replaced, np.array(missed))

    def _follow(
        self,
        rejected: IntArray,
        wanted: FloatArray,
        reach: float,
        accepted: FloatArray,
        replaced: FloatArray,
    ) -> None:
        """Add what the next draft does after the rejection of these, and go on from there."""
        checkpoint()
        draft = self._next(rejected)
        taken = np.minimum(wanted, draft)
        accepted += reach * taken
        missed, left = draft - taken, residual_distribution(wanted, taken)
        if rejected.size + 1 == self.problem.n:
            replaced += reach * float(missed.sum()) * left
            return
        for token in np.flatnonzero(missed):
            further = np.append(rejected, token)
            self._follow(further, left, reach * float(missed[token]), accepted, replaced)

    def _follow_drawn(
        self, rng: np.random.Generator, accepted: FloatArray, replaced: FloatArray
    ) -> float:
        """Add one drawn sequence; the probability that all of its drafts fail."""
        rejected = np.empty(0, dtype=np.int64)
        wanted, reach = self.problem.target, 1.0
        for _ in range(self.problem.n):
            draft = self._next(rejected)
            taken = np.minimum(wanted, draft)
            accepted += reach * taken
            cumulative = np.cumsum(draft - taken)
            reach *= float(cumulative[-1])
            if reach <= 0.0:
                return 0.0
            wanted = residual_distribution(wanted, taken)
            rejected = np.append(rejected, invert_cdf(cumulative, rng.random()))
        replaced += reach * wanted
        return min(1.0, reach)

    def _next(self, rejected: IntArray) -> FloatArray:
        """Distribution of the next draft."""
        draft = self.problem.drafts.next_distribution(rejected)
        assert draft is not None, "the scheme drafts n tokens"
        return draft


class RecursiveRejectionWithoutReplacementPlan(SequentialRejectionPlan):
    """`RejectionPlan` for drafts without replacement (RRSw), with faster steps.

    The parameters are those of `SequentialRejectionPlan`.
    """

    @property
    def drafts(self) -> WithoutReplacement:
        """The draft scheme."""
        assert isinstance(self.problem.drafts, WithoutReplacement)
        return self.problem.drafts

    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield q and the mass of what is not drawn yet."""
        draft = self.drafts.draft
        yield draft, 1.0
        others = draft.copy()
        others[draft_tokens] = 0.0
        left = float(others.sum()) + np.cumsum(draft[draft_tokens][:0:-1])[::-1]
        for mass in left.tolist():
            yield draft, mass

    def _enumerated(self) -> Marginals:
        """See `otlp.solvers.rejections`."""
        return all_sequences(self.problem.target, self.drafts)

    def _drawn(self) -> Marginals:
        """See `otlp.solvers.rejections`."""
        rng = np.random.default_rng(self.seed)
        return drawn_sequences(self.problem.target, self.drafts, self.samples, rng)


@dataclass(frozen=True)
class RecursiveRejection(Solver):
    """Recursive rejection sampling (Miao et al. 2024, SpecInfer; SpecHub, Algorithm 1).

    The scheme decides the variant: RRS for i.i.d. and for different independent drafts, RRSw for
    drafts without replacement, and the same rule with the scheme's `next_distribution` for all
    others.

    Parameters
    ----------
    max_sequences : float
        Steps up to which the exact acceptance of drafts that depend on each other is summed up:
        k^(n-1) sequences of rejected tokens without replacement, for a support of k tokens; for
        the others as many as the first n - 1 tokens can be, times V / 32, as each step is over
        all tokens.  Beyond, it is estimated.
    samples : int
        Sequences of rejected tokens that an estimate draws.
    seed : int
        Of the estimate.
    time_limit : float or None
        Seconds after which no further sequence is drawn: the estimate is then of fewer, which its
        interval says.  Drafts that depend on each other alone take that long.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    The plan takes O(V) a rejected draft, and is lossless by construction; only its acceptance is
    a sum over sequences.  RRS: O(nV).  RRSw: O(k^(n-1) log k), any V for n = 2, k = 1,000 for
    n = 3.  Beyond, the mean over drawn sequences, O(n log V) each: ``solution.acceptance_interval``
    misses the true acceptance once in a million.  Others: O(V) a tuple, or a step of a drawn
    sequence, of which there are fewer where V is large.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.solve(problem, "recursive-rejection").acceptance, 6)
    0.94
    """

    max_sequences: float = 1e6
    samples: int = 50_000
    seed: int = 0
    time_limit: float | None = None

    name: ClassVar[str] = "recursive-rejection"
    releases_gil: ClassVar[bool] = True
    promise: ClassVar[Guarantee] = Guarantee.LOSSLESS
    """Lossless by construction: each step is single-draft rejection sampling."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_number("max_sequences", self.max_sequences, lambda most: most > 0.0, "be positive")
        whole_number(self.samples, "samples", LEAST_SEQUENCES)
        whole_number(self.seed, "seed", 0)
        check_time_limit(self.time_limit)

    def work(self, problem: Problem) -> float:
        """Steps of the exact acceptance: see `max_sequences`; for independent drafts n times V."""
        check_problem(problem)
        drafts = problem.drafts
        if drafts.independent_drafts is not None:
            return float(problem.vocab_size) * problem.n
        if isinstance(drafts, WithoutReplacement):
            with np.errstate(over="ignore"):
                return float(np.float64(drafts.support.sum()) ** (problem.n - 1))
        return drafts.prefix_count() * max(1.0, problem.vocab_size / NUMBERS_A_STEP)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Write the plan down; the verifier finds the acceptance and the bound."""
        drafts, independent = problem.drafts, problem.drafts.independent_drafts
        plan: Plan
        if independent is not None:
            plan = RecursiveRejectionPlan(problem, independent)
        else:
            samples = 0 if self.work(problem) <= self.max_sequences else self.samples
            fast = isinstance(drafts, WithoutReplacement) and not _reciprocals_overflow(drafts)
            kind = RecursiveRejectionWithoutReplacementPlan if fast else SequentialRejectionPlan
            plan = kind(problem, samples, self.seed, self.time_limit)
        return Answer(plan, Guarantee.LOSSLESS)


def _reciprocals_overflow(drafts: WithoutReplacement) -> bool:
    """Whether what is left of q may be so little that faster steps cannot divide by it."""
    return bool(((drafts.draft > 0.0) & (drafts.draft < LEAST_DRAFT)).any())
