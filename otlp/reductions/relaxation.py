"""The relaxed OTLP: accepted masses only, with inequalities instead of marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, Mask
from otlp.drafts import DraftTuples, TokenSets
from otlp.plan import SetPlan, TablePlan
from otlp.problem import Problem
from otlp.reductions.reduction import PrimalDual, Reduction


@dataclass(frozen=True, eq=False)
class RelaxedOTLP:
    """Maximise sum S over S >= 0 on the members of each group (Global Resolution, Eq. 2).

    A group is a tuple, or a set of tuples with the same distinct tokens.

    Attributes
    ----------
    target : ndarray, shape (V,)
        Row bounds: sum over groups of S(i, group) <= target[i].
    groups : TokenSets
        Column bounds: sum over members of S(member, group) <= groups.mass[group].

    Examples
    --------
    >>> import numpy as np, otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed, _ = reductions.MergeTuples().apply(problem)
    >>> round(float(relaxed.dual_value(np.array([True, False, False]))), 6)
    0.85
    """

    target: FloatArray
    groups: TokenSets

    def dual_value(self, subset: Mask) -> float:
        """Return the upper bound on the value from a subset H, see `Problem.dual_value`; O(nnz)."""
        leaves = np.logical_or.reduceat(~subset[self.groups.members], self.groups.offsets[:-1])
        return float(self.target[subset].sum() + self.groups.mass[leaves].sum())


class RelaxationInverse(NamedTuple):
    """Inverse data: the problem, its tuples, and their distinct tokens in the same order."""

    problem: Problem
    tuples: DraftTuples
    groups: TokenSets


@dataclass(frozen=True)
class Relaxation(Reduction[Problem, RelaxedOTLP, RelaxationInverse]):
    """From the OTLP (Eq. 1) to the relaxed OTLP over tuples (Eq. 2), and back by Eq. 3.

    Source: a `Problem` whose tuples can be listed.
    Result: a `RelaxedOTLP` with one group per tuple.
    Survives: value, dual, and plan: the remaining masses of target and tuples are matched as a
    product.
    Cost: O(m V) for m tuples, in time and memory; `MergeTuples` needs less.

    Parameters
    ----------
    memory_limit : int
        Maximum size of the list of tuples, in bytes.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed, inverse = reductions.Relaxation().apply(problem)
    >>> relaxed.groups.mass.size                  # one group per tuple
    9
    """

    takes = Problem
    gives = RelaxedOTLP
    keeps = RelaxationInverse

    memory_limit: int = MEMORY_LIMIT

    def reduce(self, source: Problem) -> tuple[RelaxedOTLP, RelaxationInverse]:
        """List the tuples, and the distinct tokens of each."""
        tuples, groups = list_tuples(source, self.memory_limit)
        return RelaxedOTLP(source.target, groups), RelaxationInverse(source, tuples, groups)

    def lift(
        self, answer: PrimalDual[FloatArray, Mask], inverse: RelaxationInverse
    ) -> PrimalDual[TablePlan, Mask]:
        """Lift S, shape (nnz,), to a plan by Eq. 3, after scaling an infeasible S down."""
        return PrimalDual(lift(inverse, answer.primal), answer.dual)


def list_tuples(problem: Problem, memory_limit: int) -> tuple[DraftTuples, TokenSets]:
    """Return all tuples, and the distinct tokens of each in the same order; O(m n log n)."""
    tuples = problem.drafts.enumerate_tuples(memory_limit)
    ordered = np.sort(tuples.tokens, axis=1)
    distinct = np.ones(ordered.shape, dtype=bool)
    distinct[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    offsets = np.concatenate(([0], np.cumsum(distinct.sum(axis=1)))).astype(np.int64)
    return tuples, TokenSets(ordered[distinct], offsets, tuples.mass)


def lift(inverse: RelaxationInverse, flow: FloatArray) -> TablePlan:
    """Return the plan of Eq. 3, after scaling entries, sets and tokens of the flow down to fit."""
    problem, tuples, groups = inverse
    plan = SetPlan(problem, groups, flow)
    conditionals = np.zeros((len(groups), problem.vocab_size))
    conditionals[groups.rows, groups.members] = plan.share
    rejected = np.maximum(1.0 - conditionals.sum(axis=1, keepdims=True), 0.0)
    return TablePlan(problem, tuples, conditionals + rejected * plan.residual)
