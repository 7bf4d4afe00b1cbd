"""SpecInfer's recursive rejection sampling: the drafts in turn, each against what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from otlp.certificate import Answer
from otlp.distribution import FloatArray, IntArray
from otlp.drafts import WithoutReplacement
from otlp.drafts.token_sets import MEMORY_LIMIT
from otlp.errors import Capability
from otlp.numerics.compiled import compiled
from otlp.plan import Marginals, Plan
from otlp.plan.plan import residual_distribution
from otlp.problem import Problem, check_problem
from otlp.solution import Guarantee
from otlp.solvers.limits import check_number
from otlp.solvers.solver import Solver
from otlp.timing import Stopwatch

__all__ = [
    "RecursiveRejection",
    "RecursiveRejectionPlan",
    "RecursiveRejectionWithoutReplacementPlan",
    "SequentialRejectionPlan",
]


class RecursiveRejectionPlan(Plan):
    """Recursive rejection sampling of independent drafts (RRS).

    Accept the j-th draft x with probability min(1, r_x / q_x) for its law q = q_j; if it is
    rejected, replace r by (r - q)^+ normalised.  At first r is the target; what remains after
    the last draft is the law of the replacement.  A rejected token is never put out later.

    Parameters
    ----------
    problem : Problem
    drafts : ndarray, shape (n, V)
        The laws q_1, ..., q_n.
    """

    def __init__(self, problem: Problem, drafts: FloatArray) -> None:
        super().__init__(problem)
        self.accept: list[FloatArray] = []
        accepted = np.zeros(problem.vocab_size)
        wanted, reach = problem.target, 1.0
        for draft in drafts:
            taken = np.minimum(wanted, draft)
            self.accept.append(np.divide(taken, draft, out=np.ones_like(draft), where=draft > 0.0))
            accepted += reach * taken
            reach *= float(np.maximum(draft - taken, 0.0).sum())
            wanted = residual_distribution(wanted, taken)
        self.taken, self.residual, self.reach = accepted, wanted, reach

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan, O(V + n)."""
        left = 1.0
        law = np.zeros(self.problem.vocab_size)
        for token, accept in zip(self._check(draft_tokens), self.accept, strict=True):
            law[token] += left * accept[token]
            left *= 1.0 - accept[token]
        result: FloatArray = law + left * self.residual
        return result

    def marginals(self) -> Marginals:
        """Acceptance and output law, as summed up on construction; O(nV)."""
        output = self.taken + self.reach * self.residual
        return Marginals(self.taken, output, "closed form")


class SequentialRejectionPlan(Plan):
    """Recursive rejection sampling of drafts that depend on the earlier ones.

    As `RecursiveRejectionPlan`, but the distribution of the j-th draft is conditional on the
    rejected ones (`DraftScheme.next_distribution`), so that what is left depends on them.

    Parameters
    ----------
    problem : Problem
    """

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan, O(nV)."""
        tokens = self._check(draft_tokens)
        law = np.zeros(self.problem.vocab_size)
        wanted, left = self.problem.target, 1.0
        for place, token in enumerate(tokens):
            draft, taken = self._step(tokens[:place], wanted)
            accept = float(taken[token] / draft[token])
            law[token] += left * accept
            left *= 1.0 - accept
            wanted = residual_distribution(wanted, taken)
        result: FloatArray = law + left * wanted
        return result

    def marginals(self) -> Marginals:
        """Acceptance and output law, summed over all sequences of rejected tokens; O(V) each."""
        accepted = np.zeros(self.problem.vocab_size)
        replaced = np.zeros(self.problem.vocab_size)
        self._follow(np.empty(0, dtype=np.int64), self.problem.target, 1.0, accepted, replaced)
        return Marginals(accepted, accepted + replaced, "enumerated")

    def _follow(
        self,
        rejected: IntArray,
        wanted: FloatArray,
        reach: float,
        accepted: FloatArray,
        replaced: FloatArray,
    ) -> None:
        """Add what the next draft does after the rejection of these, and go on from there."""
        draft, taken = self._step(rejected, wanted)
        accepted += reach * taken
        missed, left = draft - taken, residual_distribution(wanted, taken)
        if rejected.size + 1 == self.problem.n:
            replaced += reach * float(missed.sum()) * left
            return
        for token in np.flatnonzero(missed):
            further = np.append(rejected, token)
            self._follow(further, left, reach * float(missed[token]), accepted, replaced)

    def _step(self, rejected: IntArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Distribution of the next draft, and what of it is accepted."""
        draft = self.problem.drafts.next_distribution(rejected)
        assert draft is not None, "the scheme drafts n tokens"
        return draft, np.minimum(wanted, draft)


class RecursiveRejectionWithoutReplacementPlan(SequentialRejectionPlan):
    """`SequentialRejectionPlan` for drafts without replacement (RRSw), whose marginals are faster.

    Parameters
    ----------
    problem : Problem
    drafts : WithoutReplacement
    """

    def __init__(self, problem: Problem, drafts: WithoutReplacement) -> None:
        super().__init__(problem)
        self.drafts = drafts

    def marginals(self) -> Marginals:
        """Acceptance and output law, summed over all sequences of rejected tokens.

        What is left of the target after any rejections is (p - b q)^+, normalised, for a number b
        that depends on the rejected masses.  So a step adds, to all tokens with p/q in an
        interval, a multiple of p and of q: O(log V) each, O(k^(n-1) log k) in all for a support
        of k tokens.
        """
        target, q, n = self.problem.target, self.drafts.draft, self.problem.n
        tokens = np.flatnonzero(q)
        with np.errstate(over="ignore"):
            ratio = target[tokens] / q[tokens]
        order = np.argsort(ratio, kind="stable")
        tokens, ratio = tokens[order], ratio[order]
        # The last token stands for all those that are never drafted.
        outside = float(target[q == 0.0].sum())
        masses = np.array(
            [[*target[tokens], outside], [*q[tokens], 0.0], [*ratio, np.inf]], dtype=np.float64
        )
        above = np.zeros((2, tokens.size + 2))
        above[:, :-1] = np.cumsum(masses[:2, ::-1], axis=1)[:, ::-1]
        top, tail = self.drafts.top_and_tail
        places = np.flatnonzero(np.isin(tokens, top))
        added = np.zeros((4, tokens.size + 2))
        _walk(0, 0.0, 1.0, np.zeros(n - 1, dtype=np.int64), masses, above, places, tail, added)
        added = np.cumsum(added, axis=1)[:, :-1]
        taken = np.maximum(added[0] * masses[0] + added[1] * masses[1], 0.0)
        left = np.maximum(added[2] * masses[0] + added[3] * masses[1], 0.0)
        acceptance = np.zeros(self.problem.vocab_size)
        acceptance[tokens] = taken[:-1]
        output = target * (left[-1] / outside) if outside > 0.0 else np.zeros_like(target)
        output[tokens] = taken[:-1] + left[:-1]
        return Marginals(acceptance, output, "enumerated")


@dataclass(frozen=True)
class RecursiveRejection(Solver):
    """Recursive rejection sampling (Miao et al. 2024, SpecInfer; SpecHub, Algorithm 1).

    The scheme decides the variant: RRS for i.i.d. and for different independent drafts, RRSw for
    drafts without replacement, and the same rule with the scheme's `next_distribution` for all
    others.

    Parameters
    ----------
    max_sequences : float
        Steps up to which the exact acceptance of drafts that depend on each other is computed:
        k^(n-1) sequences of rejected tokens without replacement, for a support of k tokens, V
        times the tuples for the others.  The plan itself does not need them.

    Raises
    ------
    InvalidInputError
        If `max_sequences` is not a positive number.

    Notes
    -----
    RRS: O(nV).  RRSw: O(nV) a slice, and O(k^(n-1) log k) once for the acceptance: any V for
    n = 2, k = 5,000 for n = 3.  Others: O(nV) a slice, and O(V) a tuple once.

    Examples
    --------
    >>> import otlp
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.WithoutReplacement([0.5, 0.3, 0.2], n=2))
    >>> round(otlp.solve(problem, "recursive-rejection").acceptance, 6)
    0.94
    """

    max_sequences: float = 3e7

    name: ClassVar[str] = "recursive-rejection"

    def __post_init__(self) -> None:
        """Check the limit."""
        check_number("max_sequences", self.max_sequences, lambda most: most > 0.0, "be positive")

    def supports(self, problem: Problem) -> Capability:
        """Support every scheme, while the exact acceptance can be computed."""
        check_problem(problem)
        work = self.work(problem)
        if problem.drafts.independent_drafts is not None:
            if 8.0 * work > MEMORY_LIMIT:
                return Capability(
                    False,
                    f"the acceptance of {problem.n} drafts over {problem.vocab_size} tokens would "
                    f"need {8.0 * work / 1024**2:,.0f} MiB, more than the limit of "
                    f"{MEMORY_LIMIT / 1024**2:,.0f} MiB: use martingale or orderings",
                )
        elif work > self.max_sequences:
            return Capability(
                False,
                f"the exact acceptance of drafts that depend on each other sums over {work:,.0f} "
                f"sequences of rejected tokens, more than max_sequences = "
                f"{self.max_sequences:,.0f}: raise it, or cut the draft with top_k",
            )
        return Capability(True)

    def work(self, problem: Problem) -> float:
        """Steps of the exact acceptance: see `max_sequences`; for independent drafts n times V."""
        check_problem(problem)
        drafts = problem.drafts
        if drafts.independent_drafts is not None:
            return float(problem.vocab_size) * problem.n
        if isinstance(drafts, WithoutReplacement):
            with np.errstate(over="ignore"):
                return float(np.float64(drafts.support.sum()) ** (problem.n - 1))
        return drafts.tuple_count() * problem.vocab_size

    def answer(self, problem: Problem, clock: Stopwatch) -> Answer:
        """Write the plan down; the verifier finds the bound."""
        drafts, independent = problem.drafts, problem.drafts.independent_drafts
        plan: Plan
        if independent is not None:
            plan = RecursiveRejectionPlan(problem, independent)
        elif isinstance(drafts, WithoutReplacement):
            plan = RecursiveRejectionWithoutReplacementPlan(problem, drafts)
        else:
            plan = SequentialRejectionPlan(problem)
        return Answer(plan, Guarantee.LOSSLESS)


@compiled
def _walk(
    depth: int,
    level: float,
    reach: float,
    path: IntArray,
    masses: FloatArray,
    above: FloatArray,
    top: IntArray,
    tail: float,
    added: FloatArray,
) -> None:
    """Add what the next draft does after the rejection of ``path[:depth]``, and go on from there.

    Tokens come by p/q ascending: `masses` has the rows p, q and p/q, `above` the sums of p and q
    from each token on, and `added` what is taken (times p, times q) and what is left at the end
    (times p, times q) from each token on.
    """
    target, draft, ratio = masses
    first = np.searchsorted(ratio, level, side="right")
    total = above[0, first] - level * above[1, first]
    if total <= 0.0:
        return
    # r = (p - level q)^+ / total meets the draft q / left.
    share, scale = reach / total, total / _left(draft, top, tail, path[:depth])
    middle = np.searchsorted(ratio, level + scale, side="right")
    added[0, first] += share
    added[1, first] -= share * level
    added[0, middle] -= share
    added[1, middle] += share * (level + scale)
    if depth == path.size:
        added[2, middle] += share
        added[3, middle] -= share * (level + scale)
        return
    for token in range(middle):
        rejected = draft[token] * scale - max(target[token] - draft[token] * level, 0.0)
        if rejected > 0.0 and not (path[:depth] == token).any():
            path[depth] = token
            _walk(depth + 1, level + scale, share * rejected, path, masses, above, top, tail, added)


@compiled
def _left(draft: FloatArray, top: IntArray, tail: float, path: IntArray) -> float:
    """Mass of all tokens but those of the path; see `WithoutReplacement.outside`."""
    left = tail
    for token in path:
        if not (top == token).any():
            left -= draft[token]
    left = max(left, 0.0)
    for token in top:
        if not (path == token).any():
            left += draft[token]
    return left
