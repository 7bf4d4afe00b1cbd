"""SpecInfer's recursive rejection sampling: test the drafts in turn against the residual."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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
from otlp.drafts.without_replacement import UNIT
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.positive_part import positive_part
from otlp.plan import Marginals, Plan
from otlp.plan.plan import first_accepted, residual_distribution
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.rejections import all_sequences, drawn_sequences, sampled_marginals
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch, checkpoint, deadline, seconds_left

MOST_NUMBERS = 1e9
"""Maximum number of array entries that an estimate reads (a few seconds), if steps cost O(V)."""

RENORMALISE_BELOW = 1e-3
"""A residual with less mass is normalised, to avoid underflow of entries that are not tiny."""

NUMBERS_A_STEP = 32.0
"""Number of array entries that are read in the time of one compiled step."""

LEAST_SEQUENCES = 100
"""Minimum number of sequences that an estimate draws."""

LEAST_RESIDUAL = 1e-300
"""Residual mass below which a draft is rejected only by rounding."""


class _Residual:
    """The residual of the target after rejections: ``weights / total``, shape (V,)."""

    def __init__(self, target: FloatArray) -> None:
        self.weights, self.total = target, 1.0

    def chance(self, token: int, draft: FloatArray, mass: float) -> float:
        """Return the acceptance probability min(1, r/q) of a token, for q = draft / mass."""
        wanted, drawn = float(self.weights[token]) / self.total, float(draft[token]) / mass
        return 1.0 if wanted >= drawn else wanted / drawn

    def reject(self, draft: FloatArray, mass: float) -> None:
        """Replace r by a multiple of (r - q)^+; keep r if rounding makes this zero."""
        weights, total = positive_part(1.0, self.weights, self.total / mass, draft)
        if 0.0 < total < RENORMALISE_BELOW:
            weights /= total
            total = 1.0
        if total > 0.0:
            self.weights, self.total = weights, total


class RejectionPlan(Plan):
    """Recursive rejection sampling: test each draft against the residual r of the earlier drafts.

    Initially r is the target.  Accept the j-th draft x with probability min(1, r_x / q_x) for its
    distribution q; if x is rejected, replace r by (r - q)^+ normalised.  After the last draft, r
    is the distribution of the replacement.  A rejected token is never output later.  The output
    distribution from each step on is r, so the rule is lossless.
    """

    @abstractmethod
    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield the distribution of each draft given the earlier drafts, as weights and their sum.

        Rejected tokens may keep their weight, because their residual is zero.
        """

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional distribution; O(nV); see `Plan.conditional`."""
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
        """Return P(verified token = first draft = x), shape (V,); O(V)."""
        first = self.problem.drafts._next(np.empty(0, dtype=np.int64))
        taken: FloatArray = np.minimum(self.problem.target, first)
        return taken

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Sample the verified token; O(V) for each rejected draft."""
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
        Distributions q_1, ..., q_n.
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
        """Return acceptance and output distribution; O(nV)."""
        accepted, left = np.zeros(self.problem.vocab_size), self.problem.target.copy()
        reach, total = 1.0, 1.0
        for draft in self.drafts:
            missed, total = _take(accepted, left, total, draft, reach)
            reach *= missed
        left *= reach / total
        left += accepted
        return Marginals(accepted, left, "closed form")

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`; the residual after each rejection is the same for all tuples."""
        residual, coins = _Residual(self.problem.target), []
        for column, draft in zip(tokens.T, self.drafts, strict=True):
            wanted, drawn = residual.weights[column] / residual.total, draft[column]
            coins.append(np.divide(wanted, drawn, out=np.ones(column.size), where=wanted < drawn))
            residual.reject(draft, 1.0)
        law = residual.weights / residual.total
        return first_accepted(tokens, np.stack(coins, axis=1), law, rng)


@compiled(fastmath=WITHOUT_NAN)
def _take(
    accepted: FloatArray, left: FloatArray, total: float, draft: FloatArray, reach: float
) -> tuple[float, float]:
    """Add the accepted mass of one draft, and subtract it from the residual of the target.

    Parameters
    ----------
    accepted, left : ndarray, shape (V,)
        Accepted mass, and unnormalised residual with sum `total`; overwritten.
    reach : float
        Probability that this draft is tested.

    Returns
    -------
    missed, total : float
        Probability that the draft is rejected, and new sum of the residual.
    """
    missed, rest, scale = 0.0, 0.0, 1.0 / total
    for x in range(draft.size):
        wanted = left[x] * scale
        taken = min(wanted, draft[x])
        accepted[x] += reach * taken
        missed += draft[x] - taken
        left[x] = wanted - taken
        rest += wanted - taken
    return missed, rest if rest > LEAST_RESIDUAL else 1.0


class SequentialRejectionPlan(RejectionPlan):
    """`RejectionPlan` for drafts that depend on the earlier drafts.

    Parameters
    ----------
    problem : Problem
    samples : int
        Number of sequences of rejected tokens for an estimate of the acceptance; with 0, the
        acceptance is the sum over all sequences.
    seed : int
        Random seed of the estimate.
    time_limit : float or None
        See `RecursiveRejection`.
    """

    def __init__(self, problem: Problem, samples: int, seed: int, time_limit: float | None) -> None:
        super().__init__(problem)
        self.samples, self.seed, self.time_limit = samples, seed, time_limit

    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield the distributions of `DraftScheme.next_distribution`."""
        for place in range(draft_tokens.size):
            yield self.problem.drafts._next(draft_tokens[:place]), 1.0

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return the marginals over sequences of rejected tokens; O(V) per step."""
        with deadline(self.time_limit):
            return self._sampled() if self.samples else self._summed()

    def _summed(self) -> Marginals:
        """Sum over all sequences, or draw the minimum number if the time limit is reached."""
        accepted, replaced = np.zeros((2, self.problem.vocab_size))
        nothing = np.empty(0, dtype=np.int64)
        try:
            self._follow(nothing, self.problem.target, 1.0, accepted, replaced)
        except TimeoutError:
            return self._sampled()
        return Marginals(accepted, accepted + replaced, "enumerated")

    def _sampled(self) -> Marginals:
        """Draw `samples` sequences, or fewer if V is large or the time limit is reached."""
        accepted, replaced = np.zeros((2, self.problem.vocab_size))
        most = int(MOST_NUMBERS / (self.problem.n * self.problem.vocab_size))
        rng, missed = np.random.default_rng(self.seed), list[float]()
        while len(missed) < LEAST_SEQUENCES or (
            len(missed) < min(self.samples, most) and seconds_left() > 0.0
        ):
            missed.append(self._follow_drawn(rng, accepted, replaced))
        accepted, replaced = accepted / len(missed), replaced / len(missed)
        return sampled_marginals(accepted, accepted + replaced, np.array(missed))

    def _follow(
        self,
        rejected: IntArray,
        wanted: FloatArray,
        reach: float,
        accepted: FloatArray,
        replaced: FloatArray,
    ) -> None:
        """Add the masses of the next draft after these rejections, and recurse."""
        checkpoint()
        draft = self.problem.drafts._next(rejected)
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
        """Add one drawn sequence; return the probability that all its drafts are rejected."""
        rejected = np.empty(0, dtype=np.int64)
        wanted, reach = self.problem.target, 1.0
        for _ in range(self.problem.n):
            draft = self.problem.drafts._next(rejected)
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


class RecursiveRejectionWithoutReplacementPlan(SequentialRejectionPlan):
    """`RejectionPlan` for drafts without replacement (RRSw), with faster steps.

    For the parameters see `SequentialRejectionPlan`.
    """

    @property
    def drafts(self) -> WithoutReplacement:
        """The draft scheme."""
        assert isinstance(self.problem.drafts, WithoutReplacement)
        return self.problem.drafts

    @cached_property
    def scaled(self) -> FloatArray:
        """The draft distribution times `UNIT`; the reciprocal of no remaining mass overflows."""
        return UNIT * self.drafts.draft

    def next_drafts(self, draft_tokens: IntArray) -> Iterator[tuple[FloatArray, float]]:
        """Yield q and the mass of the tokens that are not drawn yet, both times `UNIT`."""
        draft = self.scaled
        yield draft, UNIT
        others = draft.copy()
        others[draft_tokens] = 0.0
        left = float(others.sum()) + np.cumsum(draft[draft_tokens][:0:-1])[::-1]
        for mass in left.tolist():
            yield draft, mass

    def _summed(self) -> Marginals:
        """See `otlp.solvers.rejections`."""
        return all_sequences(self.problem.target, self.drafts)

    def _sampled(self) -> Marginals:
        """See `otlp.solvers.rejections`."""
        rng = np.random.default_rng(self.seed)
        return drawn_sequences(self.problem.target, self.drafts, self.samples, rng)


@dataclass(frozen=True)
class RecursiveRejection(Solver):
    """Recursive rejection sampling (Miao et al. 2024, SpecInfer; SpecHub, Algorithm 1).

    The scheme determines the variant: RRS for i.i.d. and other independent drafts, RRSw for drafts
    without replacement, and the same rule with the scheme's `next_distribution` for all other
    schemes.

    Parameters
    ----------
    max_sequences : float
        Maximum number of steps for the exact acceptance of dependent drafts; beyond it, the
        acceptance is estimated.  The steps are k^(n-1) sequences of rejected tokens for drafts
        without replacement from k tokens; for other schemes, the number of possible prefixes of
        n - 1 tokens times V / 32, as each step visits all tokens.
    samples : int
        Number of sequences of rejected tokens that an estimate draws.
    seed : int
        Random seed of the estimate.
    time_limit : float or None
        Time limit in seconds, after which no further sequence is drawn; the estimate then has fewer
        sequences and a wider interval.  Only dependent drafts can take this long.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    The plan costs O(V) per rejected draft and is lossless by construction; only its acceptance is a
    sum over sequences.  RRS: O(nV).  RRSw: O(k^(n-1) log k), which by default is exact for any V
    at n = 2 and for k = 1,000 at n = 3; beyond, the mean over drawn sequences, O(n log V) each,
    where ``solution.acceptance_interval`` misses the true acceptance with probability 1e-6.  Other
    schemes: O(V) per tuple or per step of a drawn sequence; fewer sequences are drawn for large V.

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
    """Lossless by construction, because each step is single-draft rejection sampling."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_number("max_sequences", self.max_sequences, lambda most: most > 0.0, "be positive")
        whole_number(self.samples, "samples", LEAST_SEQUENCES)
        whole_number(self.seed, "seed", 0)
        check_time_limit(self.time_limit)

    def work(self, problem: Problem) -> float:
        """Return the steps of the exact acceptance (see `max_sequences`), or nV if independent."""
        check_problem(problem)
        drafts = problem.drafts
        if drafts._independent is not None:
            return float(problem.vocab_size) * problem.n
        if isinstance(drafts, WithoutReplacement):
            with np.errstate(over="ignore"):
                return float(np.float64(drafts.support.sum()) ** (problem.n - 1))
        return drafts.prefix_count() * max(1.0, problem.vocab_size / NUMBERS_A_STEP)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Return the plan; the verifier computes the acceptance and the bound."""
        drafts, independent = problem.drafts, problem.drafts._independent
        plan: Plan
        if independent is not None:
            plan = RecursiveRejectionPlan(problem, independent)
        else:
            samples = 0 if self.work(problem) <= self.max_sequences else self.samples
            fast = isinstance(drafts, WithoutReplacement)
            kind = RecursiveRejectionWithoutReplacementPlan if fast else SequentialRejectionPlan
            plan = kind(problem, samples, self.seed, self.time_limit)
        return Answer(plan, Guarantee.LOSSLESS)
