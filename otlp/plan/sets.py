"""A plan that depends on the set of distinct drafted tokens only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otlp.checks import own_float_errors
from otlp.distribution import FloatArray, sum_by
from otlp.drafts import TokenSets
from otlp.plan.plan import Marginals, Plan, residual_distribution
from otlp.problem import Problem


class SetPlan(Plan):
    """Accept token i of set A with probability flow(i, A) / mass(A), else draw a replacement.

    This is the lifting of a relaxed solution S to a plan (Global Resolution, Eq. 3), for S
    merged over the tuples with the same set of distinct tokens.  The flow is first made
    feasible: negative entries become zero, sets that give more than their mass and then tokens
    that take more than is wanted are scaled down.  What is left of both goes to the replacement,
    so the output is what is wanted, whatever the flow.  A set that is not listed, of a mass that
    underflows, gets a replacement.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
        The sets A and their masses.
    flow : ndarray, shape (nnz,)
        S(i, A) for each member i of each set A, in the order of ``sets.members``.
    wanted : ndarray, shape (V,), optional
        What the sets have to put out, if they are some of the tuples alone, merged by those of
        their tokens that are in any set; sums to their mass.  By default the target.

    Examples
    --------
    >>> import otlp
    >>> from otlp.plan import SetPlan
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> plan = otlp.solve(problem, "max-flow").plan
    >>> isinstance(plan, SetPlan)
    True
    >>> bool((plan.conditional([1, 2]) == plan.conditional([2, 1])).all())
    True
    """

    def __init__(
        self, problem: Problem, sets: TokenSets, flow: FloatArray, wanted: FloatArray | None = None
    ) -> None:
        super().__init__(problem)
        self.sets = sets
        self.listed = np.zeros(problem.vocab_size, dtype=bool)
        self.listed[sets.members] = True
        wanted = problem.target if wanted is None else wanted
        available = sets.mass[sets.rows]
        share = np.clip(flow, 0.0, available) / available
        share /= np.maximum(sum_by(sets.rows, share, len(sets)), 1.0)[sets.rows]
        taken = self._taken(share)
        kept = np.divide(wanted, taken, out=np.ones_like(taken), where=taken > wanted)
        self.share = share * kept[sets.members]
        left = np.maximum(wanted - self._taken(self.share), 0.0)
        self.residual = residual_distribution(left if left.any() else problem.target, 0.0)

    def _taken(self, share: FloatArray) -> FloatArray:
        return sum_by(
            self.sets.members, share * self.sets.mass[self.sets.rows], self.problem.vocab_size
        )

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Conditional distribution, by look-up; see `Plan.conditional`."""
        tokens = self._check(draft_tokens)
        found = self.sets.find(tokens[self.listed[tokens]])
        if found < 0:
            return self.residual.copy()
        at = slice(self.sets.offsets[found], self.sets.offsets[found + 1])
        result: FloatArray = self.residual * max(0.0, 1.0 - float(self.share[at].sum()))
        result[self.sets.members[at]] += self.share[at]
        return result

    @own_float_errors
    def marginals(self) -> Marginals:
        """Acceptance and output distribution, summed over all sets; O(nnz + V)."""
        accepted = self._taken(self.share)
        given = sum_by(self.sets.rows, self.share, len(self.sets))
        rejected = np.maximum(1.0 - given, 0.0) * self.sets.mass
        drafted = sum_by(self.sets.members, rejected[self.sets.rows], self.problem.vocab_size)
        output = accepted + float(rejected.sum()) * self.residual
        return Marginals(accepted + drafted * self.residual, output, "enumerated")
