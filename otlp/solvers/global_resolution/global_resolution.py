"""Global resolution: shares by a softmax whose variables minimise two convex functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from otlp.certificate import Answer
from otlp.checks import check_choice, check_number, whole_number
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.drafts.token_sets import MOST_DRAFTS, list_sets, set_count
from otlp.errors import Capability, InvalidInputError
from otlp.numerics.compiled import compiled
from otlp.plan import Plan
from otlp.plan.slackness import SlacknessPlan
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Sides, split
from otlp.reductions.outer_residuals import level_masses, outer_masses
from otlp.reductions.subset_selection import not_iid
from otlp.reductions.truncation import (
    Buckets,
    into_buckets,
    singletons,
    truncation,
)
from otlp.solution import Guarantee, Status
from otlp.solvers.auto import Auto
from otlp.solvers.global_resolution.convex_solver import (
    ConvexFunction,
    Minimum,
    l1_norm,
    solve_convex,
    starting_point,
)
from otlp.solvers.global_resolution.logsumexp_integral import LogSumExpIntegral
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp
from otlp.solvers.global_resolution.published import PublishedSystem
from otlp.solvers.global_resolution.softmax import SoftmaxSystem
from otlp.solvers.prepared import SystemSolver
from otlp.solvers.solver import Solver, Stopped, answered
from otlp.solvers.speculative_sampling import SpeculativeSampling
from otlp.timing import Stopwatch

PAPER_LIMITS: Mapping[int, int] = {2: 50, 3: 20, 4: 10, 5: 10}
"""Most variables of a system by n, as in the paper (Appendix K)."""

MOST_VARIABLES = 800
"""Without limits, the variables of a system that are still minimised over."""

LISTED_TERMS = 1_000
"""Up to so many LogSumExp terms (Eq. 121) are listed; beyond, there is `LogSumExpIntegral`."""

FEW_TERMS = 1_000
"""Up to so many terms every token gets a variable of its own: buckets would not pay."""

COARSE_STEP, COARSE = 0.5, 1e-6
"""A step of the quadrature that is good enough to minimise with, and more than its error."""

REJECTED_SHARE, QUICK_STEPS = 0.1, 3
"""Share of what the inner system rejects that its buckets may mismatch, and Newton steps then."""

PLANS = ("lossless", "published")


class SolvedSystem(NamedTuple):
    """One system solved: its plan, its L1 deviation from what is wanted, numbers to tell."""

    plan: Plan
    deviation: float
    details: dict[str, Any]


@dataclass(frozen=True)
class GlobalResolution(SystemSolver):
    """Solve the outer and the inner system by convex minimisation, to a tolerance.

    Global Resolution, Algorithm 1, for i.i.d. drafts.  Two plans are on offer:

    - "lossless" (better than published): no tuple is left out, tokens of nearly equal ratio of
      wanted to drafted mass share a variable (`otlp.reductions.truncation.into_buckets`), and the
      accepted masses are scaled to at most what is wanted, with replacements for the rest.  The
      output is exactly the target, and tau is paid in acceptance.
    - "published": Eq. 18 with the truncation set T of section 6.3, from a start at zero.  The
      output is off by up to 15 tau in L1, and the acceptance by up to 10 tau (Lemma 6.6).

    Parameters
    ----------
    tau : float
        Error threshold, in (0, 1).
    plan : {"lossless", "published"}
        See above.
    limits : mapping of int to int, optional
        Most variables of a system by n, such as `PAPER_LIMITS`; an n that is not listed takes
        the limit of the nearest smaller one.  By default 800 for every n.
    max_iterations : int
        Limit on the iterations of L-BFGS-B in a system, where Newton steps stall; 0 leaves it out.
    newton_steps : int
        Limit on the Newton steps in a system; 0 leaves them out, as the paper does.
    fallback : Solver, optional
        What solves the problem if this method terminates early (the paper's Table 2).  Where the
        solver is named, as in `otlp.solve`, its fallback may be named too.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    Without a fallback, early termination is a status and no plan: `Status.TRUNCATION_LIMIT` or
    `Status.ITERATION_LIMIT`, with a message that says which limit, and by how much.  `details`
    holds the deviations that the method can vouch for, beside what the verifier then measures.
    O(V log V), and for G variables an iteration over binom(G, <= n) terms, or O(G n^2 + G^2 n)
    at each of about 100 nodes where that is less.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> solution = otlp.solve(problem, "global-resolution", tau=1e-4)
    >>> solution.guarantee.name, solution.gap < 1e-3
    ('LOSSLESS', True)
    """

    tau: float = 1e-3
    plan: str = "lossless"
    limits: Mapping[int, int] | None = field(default=None, hash=False)
    max_iterations: int = 25
    newton_steps: int = 50
    fallback: Solver | None = None
    name: ClassVar[str] = "global-resolution"

    def __post_init__(self) -> None:
        check_number("tau", self.tau, lambda tau: 0.0 < tau < 1.0, "lie in (0, 1), such as 1e-3")
        check_choice("plan", self.plan, PLANS)
        if self.limits is not None:
            if not isinstance(self.limits, Mapping) or not self.limits:
                raise InvalidInputError(
                    f"limits is {self.limits!r}: it must be None, or map at least one n to the "
                    "most variables of a system, as in {2: 50}"
                )
            for n, limit in self.limits.items():
                whole_number(n, "an n of limits", 1)
                whole_number(limit, f"limits[{n}]", 1)
        whole_number(self.max_iterations, "max_iterations", 0)
        whole_number(self.newton_steps, "newton_steps", 0)
        if self.max_iterations + self.newton_steps == 0:
            raise InvalidInputError(
                "max_iterations and newton_steps are both 0: nothing would be minimised"
            )
        if not (self.fallback is None or isinstance(self.fallback, Solver)):
            raise InvalidInputError(
                f"fallback is {self.fallback!r}: it must be a solver object, such as "
                "otlp.solvers.MaxFlow(); otlp.solve and make_solver take its name too"
            )

    @classmethod
    def published(cls, tau: float = 1e-3, fallback: Solver | None = None) -> GlobalResolution:
        """The method as the paper ran it: its plan and limits, 25 iterations of L-BFGS-B from 0."""
        return cls(tau, "published", PAPER_LIMITS, 25, 0, fallback)

    def supports(self, problem: Problem) -> Capability:
        """Accept at most 1,000 i.i.d. drafts; Appendix S has other ones, and no method for them."""
        check_problem(problem)
        if not isinstance(problem.drafts, IID):
            return Capability(False, f"{not_iid(problem)}; use {Auto().resolve(problem).name}")
        if problem.n > MOST_DRAFTS:
            reason = (
                f"n is {problem.n}, more than {MOST_DRAFTS}: binomials overflow; use martingale"
            )
            return Capability(False, reason)
        return Capability(True)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Solve both systems, or hand over to the fallback."""
        support = Support()
        small, inverse = support.reduce(problem)
        sides = self.divide(small)
        clock.charge("reduce")
        # here and not in `Solver.solve`, since H* and the fallback are still to be used
        found = answered(self._joined, small, sides)
        clock.charge("solve")
        plan, subset = support.lift(PrimalDual(found.plan, sides.outer.subset), inverse)
        clock.charge("recover")
        details = {"tau": self.tau, "plan": self.plan, **found.details}
        answer = replace(found, plan=plan, subset=subset, details=details)
        return self._handed_over(problem, clock, answer) if plan is None else answer

    def _joined(self, problem: Problem, sides: Sides) -> Answer:
        """Both systems, solved and joined."""
        solve = self._lossless if self.plan == "lossless" else self._published
        outer, inner = map(solve, sides)
        plan = SlacknessPlan(problem, sides.outer.subset, outer.plan, inner.plan)
        details = outer.details | inner.details | self._guarantee(outer, inner)
        return Answer(plan, self.promise, details=details)

    def _handed_over(self, problem: Problem, clock: Stopwatch, failed: Answer) -> Answer:
        """What the fallback answers; without one that takes the problem, why there is no plan."""
        if self.fallback is None:
            return failed
        capability, name = self.fallback.supports(problem), self.fallback.name
        if not capability:
            reason = f"{failed.message} Nor does the fallback {name} take it: {capability.reason}."
            return replace(failed, message=reason)
        answer = self.fallback.answer(problem, clock)
        message = f"{failed.message} Handed over to the fallback {name}. {answer.message}"
        details = {**failed.details, "fallback": name, **answer.details}
        return replace(answer, message=message.rstrip(), details=details)

    def divide(self, problem: Problem) -> Sides:
        """Find H*, and fix what each system has to put out; see `SystemSolver`."""
        return split(problem, level_masses if self.plan == "lossless" else outer_masses)

    def system(self, side: Side) -> Plan:
        """Solve one system; see `SystemSolver`.

        The lossless plan is one however far the minimiser came: then acceptance is lost.
        """
        if self.plan == "published":
            return self._published(side).plan
        return self._lossless(side, np.inf).plan

    @property
    def promise(self) -> Guarantee:
        """Only the lossless plan puts out the target however good the shares are."""
        return Guarantee.LOSSLESS if self.plan == "lossless" else Guarantee.APPROXIMATE

    def write(self, problem: Problem) -> Plan:
        """One system at a time, unless a fallback may have to stand in for both."""
        if problem.n == 1 and self.plan == "lossless":
            # Both functions have their minima in closed form: this is what they give.
            return SpeculativeSampling().write(problem)
        return super().write(problem) if self.fallback is None else Solver.write(self, problem)

    def limit(self, n: int) -> int:
        """Most variables of a system for n drafts."""
        if self.limits is None:
            return MOST_VARIABLES
        below = [listed for listed in self.limits if listed <= n]
        return self.limits[max(below) if below else min(self.limits)]

    def _guarantee(self, outer: SolvedSystem, inner: SolvedSystem) -> dict[str, Any]:
        """Lemma 6.6, with the deviations reached and with the worst ones that tau allows."""
        lossless = self.plan == "lossless"
        return {
            "outer_deviation": outer.deviation,
            "inner_deviation": inner.deviation,
            "marginal_bound": 0.0 if lossless else outer.deviation + 2.0 * inner.deviation,
            "marginal_guarantee": 0.0 if lossless else 15.0 * self.tau,
            "acceptance_bound": outer.deviation + inner.deviation,
            "acceptance_guarantee": 10.0 * self.tau,
        }

    def _lossless(self, side: Side, worst: float = 0.0) -> SolvedSystem:
        """Solve one system over buckets of tokens; a gradient up to `worst` will do, if it must."""
        draft = side.draft
        tokens, taken, ignored = _accepted_tokens(
            draft, side.wanted, side.subset, side.inside, side.ratios
        )
        limits = self.max_iterations, self.newton_steps
        allowed = REJECTED_SHARE * (side.mass - taken) if side.inside else 0.0
        if self.newton_steps and allowed > 3.0 * self.tau:
            # Where much is rejected anyway, coarse buckets may be given too much, and scaled down.
            buckets = self._buckets(side, draft, tokens, allowed)
            # Mostly the initial guess is within the tolerance.
            quick_steps = (0, min(self.newton_steps, QUICK_STEPS))
            for steps in quick_steps if buckets.mismatch <= allowed else ():
                found = self._fitted(
                    side, buckets.raised(), ignored, taken, 5.0 * self.tau, (0, steps), np.inf
                )
                if found.deviation <= 5.0 * self.tau:
                    return found
        limit = 3.0 * self.tau
        buckets = self._buckets(side, draft, tokens, limit)
        if buckets.mismatch > limit:
            raise Stopped(
                Status.TRUNCATION_LIMIT,
                f"{side.name} system: {len(buckets)} variables, the most for n = {side.problem.n}, "
                f"leave a mismatch of {buckets.mismatch:.2e}, above 3 tau = {limit:.2e} by a "
                f"factor {buckets.mismatch / limit:.2f}.",
            )
        tolerance = 5.0 * self.tau - buckets.mismatch
        return self._fitted(side, buckets, ignored, taken, tolerance, limits, worst)

    def _fitted(
        self,
        side: Side,
        buckets: Buckets,
        ignored: float,
        taken: float,
        tolerance: float,
        limits: tuple[int, int],
        worst: float,
    ) -> SolvedSystem:
        """Minimise over buckets, and scale what they get to what is wanted, `taken` in all."""
        n, slack = side.problem.n, float(side.inside)
        start = starting_point(buckets.wanted, buckets.draft, n, slack, ignored)
        minimum, function, details = self._minimise(
            side, buckets, ignored, tolerance, limits, start, worst
        )
        sets = function.terms if isinstance(function, LogSumExp) else None
        plan = SoftmaxSystem(side, minimum.given, buckets, minimum.alpha, sets)
        return SolvedSystem(plan, max(0.0, taken - float(plan.kept.sum())), details)

    def _published(self, side: Side) -> SolvedSystem:
        """Solve one system over its truncation set (Theorems 6.4 and 6.5)."""
        draft, n = side.draft, side.problem.n
        tokens, left_out = truncation(draft, n, side.accepting, side.ignored, self.tau)
        limit = self.limit(n)
        if tokens.size > limit:
            raise Stopped(
                Status.TRUNCATION_LIMIT,
                f"{side.name} system: |T| = {tokens.size} exceeds the limit of {limit} variables "
                f"for n = {n} by {tokens.size - limit}.",
            )
        buckets = singletons(draft, side.wanted, tokens)
        # Algorithm 1 says 5 tau, but a deviation of 5 tau needs the 3 left_out of Theorem 6.4 and
        # 6.5 taken off.
        limits = self.max_iterations, self.newton_steps
        tolerance = 5.0 * self.tau - 3.0 * left_out
        start = np.zeros(tokens.size)
        minimum, _, details = self._minimise(side, buckets, side.ignored, tolerance, limits, start)
        plan = PublishedSystem(side, minimum.alpha, tokens, left_out)
        details[f"{side.name}_left_out"] = left_out
        return SolvedSystem(plan, 3.0 * left_out + minimum.gradient_norm, details)

    def _buckets(
        self, side: Side, draft: FloatArray, tokens: IntArray, tolerance: float
    ) -> Buckets:
        """Put tokens into buckets; with the most allowed, the mismatch may exceed the tolerance."""
        n = side.problem.n
        limit = self.limit(n)
        # No token is drafted more often; what rounding adds would be a ratio beyond all numbers.
        wanted = np.minimum(side.wanted, n * draft)
        if tokens.size <= limit and set_count(tokens.size, n)[0] <= FEW_TERMS:
            return singletons(draft, wanted, tokens)
        return into_buckets(draft, wanted, tokens, tolerance, limit)

    def _minimise(
        self,
        side: Side,
        buckets: Buckets,
        ignored: float,
        tolerance: float,
        limits: tuple[int, int],
        start: FloatArray,
        worst: float = 0.0,
    ) -> tuple[Minimum, ConvexFunction, dict[str, Any]]:
        """Find the variables, and what they give to each bucket."""
        n, slack = side.problem.n, float(side.inside)
        count = set_count(buckets.draft.size, n)[0]
        function: ConvexFunction = (
            LogSumExp(list_sets(buckets.draft, n, ignored), buckets.wanted, slack)
            if count <= LISTED_TERMS
            else LogSumExpIntegral(buckets.draft, n, ignored, buckets.wanted, slack)
        )
        if isinstance(function, LogSumExpIntegral) and tolerance > 10.0 * COARSE:
            # Half the nodes are enough to get there, and all of them say how near that is.
            rough = replace(function, step=COARSE_STEP)
            minimum = solve_convex(rough, start, tolerance - COARSE, *limits)
            given = function.evaluate(minimum.alpha)[1]
            norm = l1_norm(given - buckets.wanted)
            minimum = minimum._replace(given=given, gradient_norm=norm)
        else:
            minimum = solve_convex(function, start, tolerance, *limits)
        if minimum.gradient_norm > max(tolerance, worst):
            raise Stopped(
                Status.ITERATION_LIMIT,
                f"{side.name} system: the gradient is {minimum.gradient_norm:.2e} in L1 after "
                f"{minimum.iterations} iterations of L-BFGS-B and {minimum.newton_steps} Newton "
                f"steps, above the tolerance {tolerance:.2e} by a factor "
                f"{minimum.gradient_norm / tolerance:.2f}: raise max_iterations or newton_steps, "
                "or raise tau.",
            )
        name = side.name
        details = {
            f"{name}_variables": buckets.draft.size,
            f"{name}_terms": count,
            f"{name}_gradient_norm": minimum.gradient_norm,
            f"{name}_iterations": minimum.iterations,
            f"{name}_newton_steps": minimum.newton_steps,
        }
        return minimum, function, details


@compiled
def _accepted_tokens(
    draft: FloatArray, wanted: FloatArray, subset: Mask, inside: bool, ratios: IntArray
) -> tuple[IntArray, float, float]:
    """Tokens that a system accepts, what they want in all, and the draft's mass of the ignored.

    Tokens that want nothing are ignored: they are drafted, and never accepted.  In the order of
    p/q, which is that of w/q too: w is p inside H*, and min(p, C q) outside.
    """
    tokens = np.empty(ratios.size, np.int64)
    count, taken, ignored = 0, 0.0, 0.0
    for x in ratios:
        if subset[x] == inside and wanted[x] > 0.0:
            tokens[count] = x
            count += 1
            taken += wanted[x]
        elif subset[x] or not inside:
            ignored += draft[x]
    return tokens[:count].copy(), taken, ignored
