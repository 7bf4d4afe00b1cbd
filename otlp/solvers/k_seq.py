"""SpecTr's k-sequential selection: test the drafts in turn with the same acceptance rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.capability import Capability
from otlp.certificate import Answer
from otlp.checks import check_generator, check_number, own_float_errors
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.drafts import IID
from otlp.numerics.compiled import WITHOUT_NAN, compiled
from otlp.numerics.inclusion import inclusion_probability
from otlp.plan import Marginals, Plan
from otlp.plan.plan import first_accepted, residual_distribution
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.solver import ClosedForm
from otlp.timing import Stopwatch


class KSeqPlan(Plan):
    """Accept each draft x in turn with probability min(1, p_x / (rho q_x)), else replace.

    Parameters
    ----------
    problem : Problem
        Problem with i.i.d. drafts.
    draft : ndarray, shape (V,)
        Draft distribution q.
    rho : float
        Division factor, at least rho*.

    Attributes
    ----------
    beta : float
        Probability that one draft passes its test: sum min(q, p / rho).
    some_draft_passes : float
        1 - (1 - beta)^n, the acceptance as SpecTr defines it.
    """

    def __init__(self, problem: Problem, draft: FloatArray, rho: float) -> None:
        super().__init__(problem)
        self.draft, self.rho = draft, rho
        self.passes = np.minimum(draft, problem.target / rho)
        self.beta = min(1.0, float(self.passes.sum()))
        self.some_draft_passes = self.beta * expected_tries(self.beta, problem.n)

    @cached_property
    def residual(self) -> FloatArray:
        """Distribution of the replacement, shape (V,)."""
        taken = self.passes * expected_tries(self.beta, self.problem.n)
        return residual_distribution(self.problem.target, taken)

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Return the conditional distribution; O(V + n)."""
        tokens = self._check(draft_tokens)
        coins = self.passes[tokens] / self.draft[tokens]
        left = np.cumprod(np.append(1.0, 1.0 - coins))
        result: FloatArray = left[-1] * self.residual
        np.add.at(result, tokens, left[:-1] * coins)
        return result

    def _draw(self, tokens: IntArray, rng: np.random.Generator) -> IntArray:
        """See `Plan._draw`."""
        return first_accepted(tokens, self.passes[tokens] / self.draft[tokens], self.residual, rng)

    def sample(self, draft_tokens: npt.ArrayLike, rng: np.random.Generator) -> int:
        """Sample the verified token; O(1) per draft, O(V) for a replacement."""
        check_generator(rng)
        for token in self._check(draft_tokens).tolist():
            if rng.random() < self._coin(token):
                return int(token)
        return int(invert_cdf(np.cumsum(self.residual), rng.random()))

    @own_float_errors
    def _coin(self, token: int) -> float:
        return float(self.passes[token] / self.draft[token])

    @own_float_errors
    def marginals(self) -> Marginals:
        """Return acceptance, including drafted replacements, and output distribution; O(V)."""
        n = self.problem.n
        share = self.draft - self.passes
        none_passes = float(np.exp(n * np.log1p(-self.beta))) if self.beta < 1.0 else 0.0
        # The rejected drafts are also i.i.d., and the replacement may be one of them.
        total = float(share.sum())
        if total > 0.0:
            share /= total
        among = inclusion_probability(share, n)
        tries = expected_tries(self.beta, n)
        output = _add_replaced(self.passes, tries, self.residual, none_passes, among)
        return Marginals(among, output, "closed form")


@dataclass(frozen=True)
class KSeq(ClosedForm):
    """K-SEQ (Sun et al. 2023, SpecTr, Algorithm 2), for i.i.d. drafts.

    Parameters
    ----------
    rho : float, optional
        Division factor.  Default rho*, the smallest lossless factor.

    Raises
    ------
    InvalidInputError
        If `rho` is less than 1 or not finite.

    Notes
    -----
    O(V): each step of the bisection visits only the tokens that are still undecided.  The
    acceptance is defined as for all rules, P(the output was drafted).  SpecTr's acceptance is
    P(some draft passes its test), which excludes replacements that were drafted; it is
    ``solution.details["some_draft_passes"]``, and at rho* at least 1 - (1 - 1/n)^n of the optimum.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem, "k-seq")
    >>> round(solution.acceptance, 6), round(solution.details["rho"], 6)
    (0.815037, 1.430074)
    """

    rho: float | None = None

    name: ClassVar[str] = "k-seq"

    def __post_init__(self) -> None:
        """Check the division factor."""
        if self.rho is not None:
            check_number("rho", self.rho, lambda rho: 1.0 <= rho < np.inf, "be finite and >= 1")

    def supports(self, problem: Problem) -> Capability:
        """Support i.i.d. drafts, if `rho` is lossless."""
        check_problem(problem)
        drafts = problem.drafts
        if not isinstance(drafts, IID):
            return Capability(
                False,
                "the drafts must be n independent samples from one distribution (otlp.IID), got "
                f"{drafts}, for which the rule is not lossless; use recursive-rejection, or "
                "orderings for the optimum",
            )
        if self.rho is not None:
            least = least_division_factor(problem.target, drafts.draft, drafts.n)
            if self.rho < least * (1.0 - 1e-12):
                return Capability(
                    False,
                    f"rho = {self.rho:.12g} is less than rho* = {least:.12g} of this problem, so "
                    "the rule is not lossless; raise rho or omit it",
                )
        return Capability(True)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Compute rho* and return the plan."""
        drafts = problem.drafts
        assert isinstance(drafts, IID)
        least = least_division_factor(problem.target, drafts.draft, drafts.n)
        plan = KSeqPlan(problem, drafts.draft, least if self.rho is None else max(self.rho, least))
        details = {"rho": plan.rho, "some_draft_passes": plan.some_draft_passes}
        return Answer(plan, Guarantee.LOSSLESS, details=details)


def expected_tries(beta: float, n: int) -> float:
    """Return the expected number of drafts that are tested, (1 - (1 - beta)^n) / beta."""
    return float(n) if beta < 1e-300 else float(inclusion_probability(beta, n) / beta)


def least_division_factor(target: FloatArray, draft: FloatArray, n: int) -> float:
    """Compute rho*, the smallest lossless division factor (SpecTr, Eq. 6).

    Token x is accepted with probability min(q_x, p_x / rho) times the expected number of tests,
    which must not exceed p_x; so rho* in [1, n] solves rho = expected number of tests.

    Parameters
    ----------
    target, draft : ndarray, shape (V,)
    n : int

    Returns
    -------
    float
        Upper end of the last interval of the bisection, which is at least rho*.
    """
    p, q = np.empty((2, target.size))
    low, high = 1.0, float(n)
    count, always, never = _undecided(target, draft, low, high, p, q)
    rho = low
    while low < high:
        beta = min(1.0, _passed(p[:count], q[:count], rho) + always + never / rho)
        # If some draft always passes, both sides equal 1 / beta up to rounding.
        if expected_tries(beta, n) <= rho * (1.0 + 2.0**-50):
            high = rho
        else:
            low = rho
        rho = 0.5 * (low + high)
        if not low < rho < high:
            break
        count, more_always, more_never = _undecided(p[:count], q[:count], low, high, p, q)
        always, never = always + more_always, never + more_never
    return high


@compiled
def _add_replaced(
    passes: FloatArray, tries: float, residual: FloatArray, none_passes: float, among: FloatArray
) -> FloatArray:
    """Return the output distribution, and overwrite `among` by the acceptance."""
    output = np.empty(passes.size)
    for x in range(passes.size):
        accepted, replaced = tries * passes[x], none_passes * residual[x]
        output[x] = accepted + replaced
        among[x] = accepted + replaced * among[x]
    return output


@compiled(fastmath=WITHOUT_NAN)
def _passed(p: FloatArray, q: FloatArray, rho: float) -> float:
    """Return the sum of min(q, p / rho)."""
    total, share = 0.0, 1.0 / rho
    for x in range(p.size):
        total += min(q[x], p[x] * share)
    return total


@compiled
def _undecided(
    target: FloatArray, draft: FloatArray, low: float, high: float, p: FloatArray, q: FloatArray
) -> tuple[int, float, float]:
    """Select the tokens for which q - p / rho changes sign for rho in [low, high].

    Returns
    -------
    count : int
        Number of these tokens.  They are written to the start of `p` and `q`, which may be the
        same arrays as `target` and `draft`.
    always, never : float
        Draft mass of the tokens with q <= p / rho, target mass of the tokens with p / rho <= q,
        for all these rho.
    """
    count, always, never = 0, 0.0, 0.0
    for x in range(target.size):
        if target[x] >= high * draft[x]:
            always += draft[x]
        elif target[x] <= low * draft[x]:
            never += target[x]
        else:
            p[count], q[count] = target[x], draft[x]
            count += 1
    return count, always, never
