"""Merging of tuples with the same set of distinct tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, Mask
from otlp.drafts import TokenSets
from otlp.plan import SetPlan
from otlp.problem import Problem
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import RelaxedOTLP


class MergeInverse(NamedTuple):
    """Inverse data: the problem and its token sets."""

    problem: Problem
    sets: TokenSets


@dataclass(frozen=True)
class MergeTuples(Reduction[Problem, RelaxedOTLP, MergeInverse]):
    """From the OTLP to the relaxed OTLP over sets of distinct tokens.

    The relaxed OTLP constrains S(i, tuple) by the tuple's set of tokens only, so tuples with the
    same set can be merged.  The inverse assigns to each tuple its share of the set's flow.

    Source: a `Problem` whose token sets can be listed.
    Result: a `RelaxedOTLP` with one group per set; for k tokens, binom(k, 1) + ... + binom(k, n)
    groups instead of k^n.
    Survives: value, dual, and plan: every tuple of a set has the set's conditional.
    Cost: O(n^2) per set for i.i.d. drafts, O(m n log m) for m listed tuples.

    Parameters
    ----------
    memory_limit : int
        Maximum size of the list of sets, in bytes.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed, inverse = reductions.MergeTuples().apply(problem)
    >>> relaxed.groups.mass.size, problem.drafts.enumerate_tuples().mass.size
    (6, 9)
    """

    takes = Problem
    gives = RelaxedOTLP
    keeps = MergeInverse

    memory_limit: int = MEMORY_LIMIT

    def reduce(self, source: Problem) -> tuple[RelaxedOTLP, MergeInverse]:
        """List the token sets and their masses."""
        sets = source.drafts.enumerate_sets(self.memory_limit)
        return RelaxedOTLP(source.target, sets), MergeInverse(source, sets)

    def lift(
        self, answer: PrimalDual[FloatArray, Mask], inverse: MergeInverse
    ) -> PrimalDual[SetPlan, Mask]:
        """Lift S, shape (nnz,), to a plan by Eq. 3, after scaling an infeasible S down."""
        return PrimalDual(SetPlan(*inverse, answer.primal), answer.dual)
