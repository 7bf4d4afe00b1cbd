"""Restriction to the tokens that can be drafted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.plan import LiftedPlan, Plan
from otlp.problem import Problem
from otlp.reductions.reduction import PrimalDual, Reduction


class SupportInverse(NamedTuple):
    """Inverse data: the original problem, the kept tokens, and the target outside the tokens."""

    problem: Problem
    tokens: IntArray
    outside: FloatArray


class Support(Reduction[Problem, Problem, SupportInverse]):
    """Keep the tokens that can be drafted, and merge all other tokens into one.

    Only a drafted token can be accepted (Global Resolution, Appendix N), so only the total mass of
    the tokens that are never drafted matters.  With a draft cut to its top k tokens
    (``drafts.top_k(k)``), V shrinks to k + 1.

    Source: any `Problem` over V tokens.
    Result: a `Problem` over the k tokens of the support, plus one token that represents all other
    tokens if the target has mass there.
    Survives: value, dual (subsets of the support), and plan: the additional token is replaced by a
    draw from the target outside the support, so no mass is lost.
    Cost: O(V); lists no tuples for i.i.d. drafts.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> wide = otlp.Problem([0.1, 0.6, 0.2, 0.1], otlp.IID([0.5, 0.5, 0.0, 0.0], n=2))
    >>> small, inverse = reductions.Support().apply(wide)
    >>> small.target.round(6).tolist()                # the last token represents all others
    [0.1, 0.6, 0.3]
    """

    takes = Problem
    gives = Problem
    keeps = SupportInverse

    def reduce(self, source: Problem) -> tuple[Problem, SupportInverse]:
        """Rename the tokens of the support to 0, 1, ..., k - 1."""
        support = source.drafts.support
        if support.all():
            everything = np.arange(source.vocab_size)
            return source, SupportInverse(source, everything, np.zeros(source.vocab_size))
        tokens = np.flatnonzero(support).astype(np.int64)
        outside = np.where(support, 0.0, source.target)
        rest = float(outside.sum())
        target = source.target[tokens]
        if rest > 0.0:
            outside /= rest
            target = np.append(target, rest)
        drafts = source.drafts._renamed(tokens, target.size)  # needs no checks
        return Problem(target, drafts), SupportInverse(source, tokens, outside)

    def lift(
        self, answer: PrimalDual[Plan | None, Mask], inverse: SupportInverse
    ) -> PrimalDual[Plan | None, Mask]:
        """Lift a plan and a subset H of the restricted problem; None stays None.

        Tokens that are never drafted are outside H.
        """
        plan, subset = answer
        problem, tokens, outside = inverse
        if tokens.size == problem.vocab_size:
            return answer
        if plan is not None:
            plan = LiftedPlan(problem, plan, tokens, outside)
        if subset is not None:
            lifted = np.zeros(problem.vocab_size, dtype=bool)
            lifted[tokens] = subset[: tokens.size]
            subset = lifted
        return PrimalDual(plan, subset)
