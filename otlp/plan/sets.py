"""Plan that depends only on the set of distinct drafted tokens."""

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
    merged over the tuples with the same set of distinct tokens.  The flow is first made feasible:
    negative entries become zero, then sets with more flow than their mass and tokens with more flow
    than `wanted` are scaled down.  The rest is assigned to the replacement, so the output is
    `wanted` for any flow.  A set that is not listed, because its mass underflows, always draws a
    replacement.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
        The sets A and their masses.
    flow : ndarray, shape (nnz,)
        S(i, A) for each member i of each set A, in the order of ``sets.members``.
    wanted : ndarray, shape (V,), optional
        Output of the plan, default the target.  If the sets cover only some tuples, merged by their
        tokens that are in any set, `wanted` sums to the mass of these tuples.

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
        rows, members, size = sets.rows, sets.members, problem.vocab_size
        available = sets.mass[rows]
        share = np.clip(flow, 0.0, available) / available
        share /= np.maximum(sum_by(rows, share, sets.mass.size), 1.0)[rows]
        taken = sum_by(members, share * available, size)
        kept = np.divide(wanted, taken, out=np.ones_like(taken), where=taken > wanted)
        self.share = share * kept[members]
        left = np.maximum(wanted - taken, 0.0)
        self.residual = residual_distribution(left if left.any() else problem.target, 0.0)

    @own_float_errors
    def conditional(self, draft_tokens: npt.ArrayLike) -> FloatArray:
        """Look up the distribution of the verified token; see `Plan.conditional`."""
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
        """Return acceptance and output distribution, summed over all sets; O(nnz + V)."""
        sets, size = self.sets, self.problem.vocab_size
        rows = sets.rows
        accepted = sum_by(sets.members, self.share * sets.mass[rows], size)
        given = sum_by(rows, self.share, sets.mass.size)
        rejected = np.maximum(1.0 - given, 0.0) * sets.mass
        drafted = sum_by(sets.members, rejected[rows], size)
        output = accepted + float(rejected.sum()) * self.residual
        return Marginals(accepted + drafted * self.residual, output, "enumerated")
