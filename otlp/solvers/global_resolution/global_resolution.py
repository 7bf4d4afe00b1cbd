"""Global resolution: acceptance by a softmax whose variables minimise two convex functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from otlp.capability import Capability
from otlp.certificate import Answer
from otlp.checks import check_choice, check_number, whole_number
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.drafts.token_sets import MOST_DRAFTS, list_sets, set_count
from otlp.errors import InvalidInputError
from otlp.numerics.compiled import compiled
from otlp.plan import Plan
from otlp.plan.slackness import SlacknessPlan
from otlp.problem import Problem, check_problem
from otlp.reductions import PrimalDual, Support
from otlp.reductions.complementary_slackness import Side, Sides, split
from otlp.reductions.outer_residuals import level_masses, outer_masses
from otlp.reductions.subset_selection import not_iid
from otlp.reductions.truncation import Buckets, into_buckets, singletons, truncation
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
from otlp.solvers.solver import Solver, Stopped, catch_stopped
from otlp.solvers.speculative_sampling import SpeculativeSampling
from otlp.timing import Stopwatch

PAPER_LIMITS: Mapping[int, int] = {2: 50, 3: 20, 4: 10, 5: 10}
"""Maximum number of variables of a system by n, as in the paper (Appendix K)."""

MOST_VARIABLES = 800
"""Maximum number of variables of a system if `limits` is None."""

LISTED_TERMS = 1_000
"""Maximum number of LogSumExp terms (Eq. 121) that are listed; beyond, use `LogSumExpIntegral`.
With as few terms each token has a variable, because buckets would not save time."""

COARSE_STEP, COARSE = 0.5, 1e-6
"""Step of the quadrature that suffices for the minimisation, and a bound on its error."""

REJECTED_SHARE, QUICK_STEPS = 0.1, 3
"""Allowed mismatch of the inner system's buckets as a fraction of its rejected mass, and the number
of Newton steps with these buckets."""

PLANS = ("lossless", "published")


class SolvedSystem(NamedTuple):
    """A solved system: its plan, its L1 deviation from the wanted masses, and details."""

    plan: Plan
    deviation: float
    details: dict[str, Any]


@dataclass(frozen=True)
class GlobalResolution(SystemSolver):
    """Solve the outer and the inner system by convex minimisation, to a tolerance.

    Global Resolution, Algorithm 1, for i.i.d. drafts.  There are two plans:

    - "lossless" (better than published): no tuple is left out; tokens with nearly equal ratios of
      wanted to drafted mass share a variable (`otlp.reductions.truncation.into_buckets`); accepted
      masses are scaled down to at most the wanted masses, and replacements supply the rest.  The
      output is exactly the target, and tau reduces only the acceptance.
    - "published": Eq. 18 with the truncation set T of section 6.3, starting from zero.  The output
      is off by up to 15 tau in L1, and the acceptance by up to 10 tau (Lemma 6.6).

    Parameters
    ----------
    tau : float
        Error threshold, in (0, 1).
    plan : {"lossless", "published"}
        Type of the plan, see above.
    limits : mapping of int to int, optional
        Maximum number of variables of a system by n, such as `PAPER_LIMITS`; an n that is not
        listed has the limit of the next smaller n.  Default 800 for all n.
    max_iterations : int
        Maximum number of iterations of L-BFGS-B per system, used if Newton steps stall; 0 disables
        L-BFGS-B.
    newton_steps : int
        Maximum number of Newton steps per system; 0 disables them, as in the paper.
    fallback : Solver, optional
        Solver to use if this method terminates early (the paper's Table 2).  `otlp.solve` and
        `make_solver` also accept its name.

    Raises
    ------
    InvalidInputError
        If an option is out of range.

    Notes
    -----
    Without a fallback, early termination returns no plan and the status `Status.TRUNCATION_LIMIT`
    or `Status.ITERATION_LIMIT`, with a message that contains the limit and by how much it was
    exceeded.  `details` contains the deviations that the method guarantees, in addition to those
    that the verifier measures.  O(V log V), plus iterations, each over binom(G, <= n) terms for G
    variables, or O(G n^2 + G^2 n) at each of about 100 nodes if this is less.

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
        check_number("tau", self.tau, lambda tau: 0.0 < tau < 1.0, "be in (0, 1), such as 1e-3")
        check_choice("plan", self.plan, PLANS)
        if self.limits is not None:
            if not isinstance(self.limits, Mapping) or not self.limits:
                raise InvalidInputError(
                    "limits must be None or a non-empty mapping of n to the maximum number of "
                    f"variables, such as {{2: 50}}; got {self.limits!r}"
                )
            for n, limit in self.limits.items():
                whole_number(n, "each n of limits", 1)
                whole_number(limit, f"limits[{n}]", 1)
        whole_number(self.max_iterations, "max_iterations", 0)
        whole_number(self.newton_steps, "newton_steps", 0)
        if self.max_iterations + self.newton_steps == 0:
            raise InvalidInputError(
                "at least one of max_iterations and newton_steps must be positive, got 0 and 0"
            )
        if not (self.fallback is None or isinstance(self.fallback, Solver)):
            raise InvalidInputError(
                "fallback must be a solver object, such as otlp.solvers.MaxFlow() (otlp.solve and "
                f"make_solver also accept its name); got {self.fallback!r}"
            )

    @classmethod
    def published(cls, tau: float = 1e-3, fallback: Solver | None = None) -> GlobalResolution:
        """Return the method with the settings of the paper: 25 iterations of L-BFGS-B from 0."""
        return cls(tau, "published", PAPER_LIMITS, 25, 0, fallback)

    def supports(self, problem: Problem) -> Capability:
        """Support at most 1,000 i.i.d. drafts; Appendix S has no method for other drafts."""
        check_problem(problem)
        if not isinstance(problem.drafts, IID):
            return Capability(False, f"{not_iid(problem)}; use {Auto().resolve(problem).name}")
        if problem.n > MOST_DRAFTS:
            reason = f"n must be at most {MOST_DRAFTS} (binomials overflow), got n = {problem.n}"
            return Capability(False, f"{reason}; use martingale")
        return Capability(True)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Solve both systems, or use the fallback."""
        support = Support()
        small, inverse = support.reduce(problem)
        sides = self.divide(small)
        clock.charge("reduce")
        # Catch `Stopped` here, not in `Solver.solve`, to use H* and the fallback afterwards.
        found = catch_stopped(self._solve_both, small, sides)
        clock.charge("solve")
        plan, subset = support.lift(PrimalDual(found.plan, sides.outer.subset), inverse)
        clock.charge("recover")
        details = {"tau": self.tau, "plan": self.plan, **found.details}
        answer = replace(found, plan=plan, subset=subset, details=details)
        return self._fall_back(problem, clock, answer) if plan is None else answer

    def _solve_both(self, problem: Problem, sides: Sides) -> Answer:
        """Solve both systems and join their plans."""
        solve = self._lossless if self.plan == "lossless" else self._published
        outer, inner = map(solve, sides)
        plan = SlacknessPlan(problem, sides.outer.subset, outer.plan, inner.plan)
        details = outer.details | inner.details | self._guarantee(outer, inner)
        return Answer(plan, self.promise, details=details)

    def _fall_back(self, problem: Problem, clock: Stopwatch, failed: Answer) -> Answer:
        """Return the answer of the fallback, or `failed` if no fallback supports the problem."""
        if self.fallback is None:
            return failed
        capability, name = self.fallback.supports(problem), self.fallback.name
        if not capability:
            reason = f"The fallback {name} does not support this problem: {capability.reason}."
            return replace(failed, message=f"{failed.message} {reason}")
        answer = self.fallback.answer(problem, clock)
        message = f"{failed.message} Used the fallback {name}. {answer.message}"
        details = {**failed.details, "fallback": name, **answer.details}
        return replace(answer, message=message.rstrip(), details=details)

    def divide(self, problem: Problem) -> Sides:
        """Compute H* and the output that each system must have; see `SystemSolver`."""
        return split(problem, level_masses if self.plan == "lossless" else outer_masses)

    def system(self, side: Side) -> Plan:
        """Solve one system; see `SystemSolver`.

        The lossless plan is valid at any accuracy of the minimiser; inaccuracy costs acceptance.
        """
        if self.plan == "published":
            return self._published(side).plan
        return self._lossless(side, np.inf).plan

    @property
    def promise(self) -> Guarantee:
        """Guarantee: only the lossless plan outputs the target at any accuracy of the shares."""
        return Guarantee.LOSSLESS if self.plan == "lossless" else Guarantee.APPROXIMATE

    def write(self, problem: Problem) -> Plan:
        """Solve one system at a time, unless there is a fallback, which solves both."""
        if problem.n == 1 and self.plan == "lossless":
            # For n = 1, the minima of both functions have a closed form, which is this plan.
            return SpeculativeSampling().write(problem)
        return super().write(problem) if self.fallback is None else Solver.write(self, problem)

    def limit(self, n: int) -> int:
        """Return the maximum number of variables of a system for n drafts."""
        if self.limits is None:
            return MOST_VARIABLES
        below = [listed for listed in self.limits if listed <= n]
        return self.limits[max(below) if below else min(self.limits)]

    def _guarantee(self, outer: SolvedSystem, inner: SolvedSystem) -> dict[str, Any]:
        """Return the bounds of Lemma 6.6 for the actual deviations and for those tau allows."""
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
        """Solve one system over buckets of tokens; accept a gradient norm up to `worst`."""
        tokens, taken, ignored = _accepted_tokens(
            side.draft, side.wanted, side.subset, side.inside, side.ratios
        )
        allowed = REJECTED_SHARE * (side.mass - taken) if side.inside else 0.0
        if self.newton_steps and allowed > 3.0 * self.tau:
            # If the rejected mass is large, coarse buckets suffice: excess mass is scaled down.
            buckets = self._buckets(side, tokens, allowed)
            # The initial guess is usually within the tolerance, so evaluate it without steps first.
            quick_steps = (0, min(self.newton_steps, QUICK_STEPS))
            for steps in quick_steps if buckets.mismatch <= allowed else ():
                goal = 5.0 * self.tau
                found = self._fitted(
                    side, buckets.raised(), ignored, taken, goal, np.inf, (0, steps)
                )
                if found.deviation <= goal:
                    return found
        limit = 3.0 * self.tau
        buckets = self._buckets(side, tokens, limit)
        if buckets.mismatch > limit:
            raise Stopped(
                Status.TRUNCATION_LIMIT,
                f"{side.name} system: the mismatch with {len(buckets)} variables, the limit for "
                f"n = {side.problem.n}, is {buckets.mismatch:.2e}, above 3 tau = {limit:.2e} by a "
                f"factor {buckets.mismatch / limit:.2f}.",
            )
        tolerance = 5.0 * self.tau - buckets.mismatch
        return self._fitted(side, buckets, ignored, taken, tolerance, worst)

    def _fitted(
        self,
        side: Side,
        buckets: Buckets,
        ignored: float,
        taken: float,
        tolerance: float,
        worst: float,
        limits: tuple[int, int] | None = None,
    ) -> SolvedSystem:
        """Minimise over buckets, and scale their masses to the wanted masses with sum `taken`."""
        minimum, details = self._minimise(side, buckets, ignored, tolerance, worst, limits)
        sets = minimum.function.terms if isinstance(minimum.function, LogSumExp) else None
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
        # Algorithm 1 states 5 tau, but for a deviation of 5 tau the 3 left_out of Theorems 6.4 and
        # 6.5 must be subtracted.
        tolerance = 5.0 * self.tau - 3.0 * left_out
        minimum, details = self._minimise(side, buckets, side.ignored, tolerance)
        plan = PublishedSystem(side, minimum.alpha, tokens, left_out)
        details[f"{side.name}_left_out"] = left_out
        return SolvedSystem(plan, 3.0 * left_out + minimum.gradient_norm, details)

    def _buckets(self, side: Side, tokens: IntArray, tolerance: float) -> Buckets:
        """Group tokens into buckets; at the limit, the mismatch may exceed the tolerance."""
        n, draft = side.problem.n, side.draft
        limit = self.limit(n)
        # A token is drafted at most this often; rounding errors above it could overflow the ratio.
        wanted = np.minimum(side.wanted, n * draft)
        if tokens.size <= limit and set_count(tokens.size, n)[0] <= LISTED_TERMS:
            return singletons(draft, wanted, tokens)
        return into_buckets(draft, wanted, tokens, tolerance, limit)

    def _minimise(
        self,
        side: Side,
        buckets: Buckets,
        ignored: float,
        tolerance: float,
        worst: float = 0.0,
        limits: tuple[int, int] | None = None,
    ) -> tuple[Minimum, dict[str, Any]]:
        """Compute the variables and the mass of each bucket."""
        n, slack = side.problem.n, float(side.inside)
        limits = limits or (self.max_iterations, self.newton_steps)
        count = set_count(buckets.draft.size, n)[0]
        start = np.zeros(buckets.draft.size)
        if self.plan == "lossless":
            start = starting_point(buckets.wanted, buckets.draft, n, slack, ignored)
        function: ConvexFunction = (
            LogSumExp(list_sets(buckets.draft, n, ignored), buckets.wanted, slack)
            if count <= LISTED_TERMS
            else LogSumExpIntegral(buckets.draft, n, ignored, buckets.wanted, slack)
        )
        if isinstance(function, LogSumExpIntegral) and tolerance > 10.0 * COARSE:
            # Minimise with half of the nodes, then evaluate the gradient with all nodes.
            rough = replace(function, step=COARSE_STEP)
            minimum = solve_convex(rough, start, tolerance - COARSE, *limits)
            given = function.evaluate(minimum.alpha)[1]
            minimum.given, minimum.gradient_norm = given, l1_norm(given - buckets.wanted)
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
        return minimum, details


@compiled
def _accepted_tokens(
    draft: FloatArray, wanted: FloatArray, subset: Mask, inside: bool, ratios: IntArray
) -> tuple[IntArray, float, float]:
    """Return the tokens that a system accepts, their wanted mass, and the ignored draft mass.

    Tokens with wanted mass 0 are ignored: they are drafted but never accepted.  The order is that
    of p/q, which is also that of w/q, because w is p inside H* and min(p, C q) outside.
    """
    tokens = np.empty(ratios.size, np.int64)
    count, taken, ignored = 0, 0.0, 0.0
    for k in range(ratios.size):
        x = ratios[k]
        if subset[x] == inside and wanted[x] > 0.0:
            tokens[count] = x
            count += 1
            taken += wanted[x]
        elif subset[x] or not inside:
            ignored += draft[x]
    return tokens[:count].copy(), taken, ignored
