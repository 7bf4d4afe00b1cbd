"""Global resolution: shares by a softmax whose variables minimise two convex functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from otlp.certificate import Answer, certify
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import IID
from otlp.drafts.token_sets import MOST_DRAFTS, set_count
from otlp.errors import Capability, InvalidInputError
from otlp.plan import Plan
from otlp.plan.plan import residual_distribution
from otlp.plan.slackness import SlacknessPlan, SoftmaxSystem, System
from otlp.problem import Problem
from otlp.reductions import Support
from otlp.reductions.complementary_slackness import Split, iid_drafts, not_iid, split
from otlp.reductions.outer_residuals import level_masses, outer_masses
from otlp.reductions.truncation import (
    Lumps,
    inner_truncation,
    lump,
    outer_truncation,
    singletons,
)
from otlp.solution import Guarantee, SolveError, Status
from otlp.solvers.global_resolution.convex_solver import (
    ConvexFunction,
    Minimum,
    solve_convex,
    starting_point,
)
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp, merged_terms
from otlp.solvers.global_resolution.published import PublishedSystem
from otlp.solvers.global_resolution.race import Race
from otlp.solvers.limits import check_choice
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

__all__ = ["PAPER_LIMITS", "GlobalResolution"]

PAPER_LIMITS: Mapping[int, int] = {2: 50, 3: 20, 4: 10, 5: 10}
"""Most variables of a system by n, as in the paper (Appendix K)."""

MOST_VARIABLES = 800
"""Without limits, the variables of a system that are still minimised over."""

LISTED_TERMS = 10_000
"""Up to so many LogSumExp terms (Eq. 121) are listed; beyond, they are integrated (`Race`)."""

FEW_TERMS = 1_000
"""Up to so many terms every token gets a variable of its own: lumping would not pay."""

PLANS = ("lossless", "published")
MINIMISERS = ("newton", "l-bfgs-b")


@dataclass(frozen=True)
class GlobalResolution(Solver):
    """Solve the outer and the inner system by convex minimisation, to a tolerance.

    Global Resolution, Algorithm 1, for i.i.d. drafts.  Two plans are on offer:

    - "lossless" (better than published): no tuple is left out, tokens of nearly equal ratio of
      wanted to drafted mass share a variable (`otlp.reductions.truncation.lump`), and the
      accepted masses are scaled to at most what is wanted, with replacements for the rest.  The
      output is exactly the target, and tau is paid in acceptance.
    - "published": Eq. 18 with the truncation set T of section 6.3.  The output is off by up to
      15 tau in L1, and the acceptance by up to 10 tau (Lemma 6.6).

    Parameters
    ----------
    tau : float
        Error threshold, in (0, 1).
    plan : {"lossless", "published"}
        See above.
    limits : mapping of int to int, optional
        Most variables of a system by n, such as `PAPER_LIMITS`; an n that is not listed takes
        the limit of the nearest smaller one.  By default 800 for every n.
    minimiser : {"newton", "l-bfgs-b"}
        The minimiser to begin with; the other goes on where it stalls.
    max_iterations : int
        Limit on the iterations of L-BFGS-B in a system; 0 leaves it out.
    newton_steps : int
        Limit on the Newton steps in a system; 0 leaves them out.
    fallback : Solver or str, optional
        What solves the problem if this method terminates early (the paper's Table 2).

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
    minimiser: str = "newton"
    max_iterations: int = 25
    newton_steps: int = 50
    fallback: Solver | str | None = None
    name: ClassVar[str] = "global-resolution"

    def __post_init__(self) -> None:
        if not 0.0 < self.tau < 1.0:
            raise InvalidInputError(f"tau is {self.tau!r}: it must lie in (0, 1), such as 1e-3")
        check_choice("plan", self.plan, PLANS)
        check_choice("minimiser", self.minimiser, MINIMISERS)
        for n, limit in ({} if self.limits is None else self.limits).items():
            if limit < 1:
                raise InvalidInputError(f"limits[{n}] is {limit}: a system needs at least 1")
        if self.limits is not None and not self.limits:
            raise InvalidInputError("limits is empty: give at least one n, or None")
        for option in ("max_iterations", "newton_steps"):
            if getattr(self, option) < 0:
                raise InvalidInputError(f"{option} is {getattr(self, option)}: at least 0")
        if self.max_iterations + self.newton_steps == 0:
            raise InvalidInputError(
                "max_iterations and newton_steps are both 0: nothing would be minimised"
            )
        if isinstance(self.fallback, str):
            from otlp.solvers.by_name import make_solver

            make_solver(self.fallback)

    @classmethod
    def published(cls, tau: float = 1e-3, fallback: Solver | str | None = None) -> GlobalResolution:
        """The method as the paper ran it: its plan, its limits, 25 iterations of L-BFGS-B."""
        return cls(tau, "published", PAPER_LIMITS, "l-bfgs-b", 25, 0, fallback)

    def supports(self, problem: Problem) -> Capability:
        """Accept at most 1,000 i.i.d. drafts."""
        if not isinstance(problem.drafts, IID):
            return Capability(False, not_iid(problem))
        if problem.n > MOST_DRAFTS:
            reason = (
                f"n is {problem.n}, more than {MOST_DRAFTS}: binomials overflow; use martingale"
            )
            return Capability(False, reason)
        return Capability(True)

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Solve both systems, or hand over to the fallback."""
        support = Support()
        small, to_problem = support.apply(problem)
        details: dict[str, object] = {"tau": self.tau, "plan": self.plan}
        plan = _Resolution(self, small, clock, details)
        subset = support.lift_subset(plan.parts.subset, to_problem)
        try:
            _ = plan.result.outer, plan.result.inner
        except SolveError as error:
            return self._terminate(problem, clock, error, subset, details)
        plan.add_guarantee()
        exact = self.plan == "lossless"
        claim = Guarantee.LOSSLESS if exact else Guarantee.APPROXIMATE
        lifted = support.invert(plan.result, to_problem)
        clock.lap("recover")
        return Answer(lifted, claim, subset, details=details)

    def lazy_plan(self, problem: Problem) -> Plan:
        """Prepare the plan; each slice then solves only the system that its tuple needs.

        Parameters
        ----------
        problem : Problem

        Returns
        -------
        Plan
            Not certified. `conditional` and `sample` raise `SolveError` where the system
            terminates early; the fallback is not used.

        Raises
        ------
        UnsupportedProblemError
            If `supports` says no.
        """
        self.require(problem)
        small, to_problem = Support().apply(problem)
        return Support().invert(_Resolution(self, small, Stopwatch(), {}).result, to_problem)

    def limit(self, n: int) -> int:
        """Most variables of a system for n drafts."""
        if self.limits is None:
            return MOST_VARIABLES
        below = [listed for listed in self.limits if listed <= n]
        return self.limits[max(below) if below else min(self.limits)]

    def _terminate(
        self,
        problem: Problem,
        clock: Stopwatch,
        error: SolveError,
        subset: Mask,
        details: dict[str, object],
    ) -> Answer:
        failed = error.solution
        message = failed.message
        if self.fallback is None:
            return Answer(None, Guarantee.NONE, subset, failed.status, message, details)
        from otlp.solvers.by_name import make_solver

        fallback = make_solver(self.fallback)
        capability = fallback.supports(problem)
        if not capability:
            message += f" Nor does the fallback {fallback.name} take it: {capability.reason}."
            return Answer(None, Guarantee.NONE, subset, failed.status, message, details)
        answer = fallback.answer(problem, clock)
        details |= {"fallback": fallback.name, **answer.details}
        message += f" Handed over to the fallback {fallback.name}. {answer.message}"
        return Answer(
            answer.plan, answer.claim, answer.subset, answer.status, message.rstrip(), details
        )


class _Resolution:
    """One run: the divided target, and the two systems on demand."""

    def __init__(
        self,
        solver: GlobalResolution,
        problem: Problem,
        clock: Stopwatch,
        details: dict[str, object],
    ) -> None:
        self.solver, self.problem, self.clock, self.details = solver, problem, clock, details
        self.deviation: dict[str, float] = {}
        drafts = iid_drafts(problem)
        self.draft, self.n = drafts.draft, drafts.n
        published = solver.plan == "published"
        self.parts = split(problem, outer_masses if published else level_masses)
        clock.lap("reduce")
        make = self._published if published else self._lossless
        self.result = SlacknessPlan(
            problem, self.parts.subset, lambda: make("outer"), lambda: make("inner")
        )

    def add_guarantee(self) -> None:
        """Lemma 6.6, with the deviations reached and with the worst ones that tau allows."""
        outer, inner, tau = self.deviation["outer"], self.deviation["inner"], self.solver.tau
        lossless = self.solver.plan == "lossless"
        self.details |= {
            "outer_deviation": outer,
            "inner_deviation": inner,
            "marginal_bound": 0.0 if lossless else outer + 2.0 * inner,
            "marginal_guarantee": 0.0 if lossless else 15.0 * tau,
            "acceptance_bound": outer + inner,
            "acceptance_guarantee": 10.0 * tau,
        }

    def _lossless(self, which: str) -> System:
        """Solve one system over lumps of tokens."""
        parts, tau = self.parts, self.solver.tau
        wanted, mass, side, slack = _system(parts, which)
        # Tokens that want nothing are ignored: they are drafted, and never accepted.
        tokens = np.flatnonzero(side & (self.draft > 0.0) & (wanted > 0.0)).astype(np.int64)
        lumps = self._lumps(which, tokens, wanted, 3.0 * tau)
        ignored = side & (wanted <= 0.0) if which == "inner" else parts.subset | (wanted <= 0.0)
        self.clock.lap("reduce")
        minimum, function = self._minimise(
            which, lumps, float(self.draft[ignored].sum()), slack, 5.0 * tau - lumps.mismatch
        )
        self.deviation[which] = lumps.mismatch + minimum.gradient_norm
        sets = function.terms if isinstance(function, LogSumExp) else None
        system = SoftmaxSystem(
            wanted,
            mass,
            function.given(minimum.alpha),
            lumps.labels,
            self.draft,
            self.problem.target,
            minimum.alpha,
            slack,
            sets,
        )
        self.clock.lap("recover")
        return system

    def _published(self, which: str) -> System:
        """Solve one system over its truncation set (Theorems 6.4 and 6.5)."""
        parts, tau = self.parts, self.solver.tau
        wanted, mass, side, slack = _system(parts, which)
        truncate = outer_truncation if which == "outer" else inner_truncation
        tokens, left_out = truncate(self.draft, self.n, parts.subset, tau)
        self.details[f"{which}_left_out"] = left_out
        limit = self.solver.limit(self.n)
        if tokens.size > limit:
            self._fail(
                Status.TRUNCATION_LIMIT,
                f"{which} system: |T| = {tokens.size} exceeds the limit of {limit} variables for "
                f"n = {self.n} by {tokens.size - limit}.",
            )
        lumps = singletons(self.draft, wanted, tokens)
        ignored = 0.0 if which == "inner" else float(self.draft[parts.subset].sum())
        self.clock.lap("reduce")
        # Algorithm 1 says 5 tau, but a deviation of 5 tau needs the 3 left_out of Theorem 6.4 and
        # 6.5 taken off.
        minimum, _ = self._minimise(which, lumps, ignored, slack, 5.0 * tau - 3.0 * left_out)
        self.deviation[which] = 3.0 * left_out + minimum.gradient_norm
        alpha = np.zeros(self.draft.size)
        alpha[tokens] = minimum.alpha
        residual = residual_distribution(self.problem.target, parts.outer_wanted + parts.subset)
        return PublishedSystem(
            self.draft, self.n, side, ignored, mass, alpha, slack, residual, tokens, left_out
        )

    def _lumps(self, which: str, tokens: IntArray, wanted: FloatArray, tolerance: float) -> Lumps:
        limit = self.solver.limit(self.n)
        if tokens.size <= limit and set_count(tokens.size, self.n)[0] <= FEW_TERMS:
            return singletons(self.draft, wanted, tokens)
        lumps = lump(self.draft, wanted, tokens, tolerance, limit)
        if lumps.mismatch > tolerance:
            self._fail(
                Status.TRUNCATION_LIMIT,
                f"{which} system: {len(lumps)} variables, the most for n = {self.n}, leave a "
                f"mismatch of {lumps.mismatch:.2e}, above 3 tau = {tolerance:.2e} by a factor "
                f"{lumps.mismatch / tolerance:.2f}.",
            )
        return lumps

    def _minimise(
        self, which: str, lumps: Lumps, ignored: float, slack: float, tolerance: float
    ) -> tuple[Minimum, ConvexFunction]:
        solver = self.solver
        count = set_count(len(lumps), self.n)[0]
        function: ConvexFunction = (
            LogSumExp(merged_terms(lumps.draft, self.n, ignored), lumps.wanted, slack)
            if count <= LISTED_TERMS
            else Race(lumps.draft, self.n, ignored, lumps.wanted, slack)
        )
        self.clock.lap("build")
        start = starting_point(lumps.wanted, lumps.draft, self.n)
        minimum = solve_convex(
            function, start, tolerance, solver.minimiser, solver.max_iterations, solver.newton_steps
        )
        self.clock.lap("solve")
        self.details[f"{which}_variables"] = len(lumps)
        self.details[f"{which}_terms"] = count
        self.details[f"{which}_gradient_norm"] = minimum.gradient_norm
        self.details[f"{which}_iterations"] = minimum.iterations
        self.details[f"{which}_newton_steps"] = minimum.newton_steps
        if minimum.gradient_norm > tolerance:
            self._fail(
                Status.ITERATION_LIMIT,
                f"{which} system: the gradient is {minimum.gradient_norm:.2e} in L1 after "
                f"{minimum.iterations} iterations of L-BFGS-B and {minimum.newton_steps} Newton "
                f"steps, above the tolerance {tolerance:.2e} by a factor "
                f"{minimum.gradient_norm / tolerance:.2f}: raise max_iterations or newton_steps, "
                "or raise tau.",
            )
        return minimum, function

    def _fail(self, status: Status, message: str) -> None:
        failed = Answer(None, Guarantee.NONE, self.parts.subset, status, message, self.details)
        raise SolveError(certify(self.problem, self.solver.name, failed, self.clock))


def _system(parts: Split, which: str) -> tuple[FloatArray, float, Mask, float]:
    """What a system has to put out, its mass, the tokens that it accepts, its slack."""
    if which == "outer":
        return parts.outer_wanted, parts.outer_mass, ~parts.subset, 0.0
    return parts.inner_wanted, parts.inner_mass, parts.subset, 1.0
