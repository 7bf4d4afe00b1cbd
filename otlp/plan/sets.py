"""A plan that depends on the set of distinct drafted tokens only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.distribution import FloatArray, sum_by
from otlp.drafts import TokenSets
from otlp.errors import ZeroProbabilityError
from otlp.plan.plan import Marginals, Plan, residual_distribution
from otlp.problem import Problem

__all__ = ["SetPlan"]


class SetPlan(Plan):
    """Accept token i of set A with probability flow(i, A) / mass(A), else draw a replacement.

    This is the lifting of a relaxed solution S to a plan (Global Resolution, Eq. 3), for S
    merged over the tuples with the same set of distinct tokens.  The flow is first made
    feasible: negative entries become zero, sets that give more than their mass and then tokens
    that take more than their target are scaled down.  What is left of both goes to the
    replacement, so the plan is lossless whatever flow it is given.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
        The sets A and their masses.
    flow : ndarray, shape (nnz,)
        S(i, A) for each member i of each set A, in the order of ``sets.members``.
    """

    def __init__(self, problem: Problem, sets: TokenSets, flow: FloatArray) -> None:
        super().__init__(problem)
        self.sets = sets
        available = sets.mass[sets.rows]
        share = np.clip(flow, 0.0, available) / available
        given = sum_by(sets.rows, share, len(sets))
        share /= np.maximum(given, 1.0)[sets.rows]
        taken = self._taken(share)
        target = problem.target
        kept = np.divide(target, taken, out=np.ones_like(taken), where=taken > target)
        share *= kept[sets.members]
        self.share = share
        self.residual = residual_distribution(problem.target, self._taken(share))

    def _taken(self, share: FloatArray) -> FloatArray:
        return sum_by(
            self.sets.members, share * self.sets.mass[self.sets.rows], self.problem.vocab_size
        )

    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Slice of the plan, by look-up; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        found = self.sets.find(tokens)
        if found < 0:
            raise ZeroProbabilityError(
                f"the set of tokens {sorted(set(tokens.tolist()))} is not among those listed: "
                "its probability underflows"
            )
        at = slice(self.sets.offsets[found], self.sets.offsets[found + 1])
        law = self.residual * max(0.0, 1.0 - float(self.share[at].sum()))
        law[self.sets.members[at]] += self.share[at]
        return law

    def marginals(self) -> Marginals:
        """Acceptance and output law, summed over all sets; O(nnz + V)."""
        accepted = self._taken(self.share)
        given = sum_by(self.sets.rows, self.share, len(self.sets))
        rejected = np.maximum(1.0 - given, 0.0) * self.sets.mass
        drafted = sum_by(self.sets.members, rejected[self.sets.rows], self.problem.vocab_size)
        output = accepted + float(rejected.sum()) * self.residual
        return Marginals(accepted + drafted * self.residual, output, "enumerated")
