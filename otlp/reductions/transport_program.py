"""The OTLP, relaxed or in full, as a linear program with limits by row and by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from otlp.checks import MEMORY_LIMIT, check_memory
from otlp.distribution import FloatArray, IntArray, Mask
from otlp.drafts import TokenSets
from otlp.plan import TablePlan
from otlp.problem import Problem
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import RelaxationInverse, RelaxedOTLP, lift, list_tuples

SLACK = 1e-12
"""Additional mass of each token in the full form, so that a solution exists in floating point."""


@dataclass(frozen=True, eq=False)
class TransportProgram:
    """Maximise reward @ x over x >= 0 with limits on the sums of x by row and by column.

    Attributes
    ----------
    rows, columns : ndarray, shape (m,), int64
        Row and column of each variable in the table.
    reward : ndarray, shape (m,)
    row_mass, column_mass : ndarray
        Upper bounds on the sums.
    exact : bool
        Whether the column sums must equal their bounds.  The row sums are then equal to theirs if
        the totals agree; equations for both would contradict each other by a rounding error, which
        the presolve of HiGHS may detect.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> program, _ = reductions.FullProgram().apply(problem)
    >>> program.row_mass.round(6).tolist(), round(float(program.column_mass.sum()), 6)
    ([0.1, 0.6, 0.3], 1.0)
    """

    rows: IntArray
    columns: IntArray
    reward: FloatArray
    row_mass: FloatArray
    column_mass: FloatArray
    exact: bool


class RelaxedProgram(Reduction[RelaxedOTLP, TransportProgram, RelaxedOTLP]):
    """The relaxed OTLP, Eq. 2 of Global Resolution, as a linear program.

    Source: a `RelaxedOTLP`.
    Result: a `TransportProgram` with a variable for each member of each group.
    Survives: value, plan (the variables are S), and dual: H* is where the price of a token is 1.
    Cost: O(V + nnz).

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed, _ = reductions.MergeTuples().apply(problem)
    >>> program, _ = reductions.RelaxedProgram().apply(relaxed)
    >>> program.reward.size, program.exact
    (9, False)
    """

    takes = RelaxedOTLP
    gives = TransportProgram
    keeps = RelaxedOTLP

    part = "build"

    def reduce(self, source: RelaxedOTLP) -> tuple[TransportProgram, RelaxedOTLP]:
        """Build the program from the arrays of the relaxed problem."""
        groups = source.groups
        reward = np.ones(groups.members.size)
        program = TransportProgram(
            groups.members, groups.rows, reward, source.target, groups.mass, exact=False
        )
        return program, source

    def lift(
        self, answer: PrimalDual[FloatArray, FloatArray], inverse: RelaxedOTLP
    ) -> PrimalDual[FloatArray, Mask]:
        """Return S, shape (nnz,), unchanged, and H* from the prices, shape (V,)."""
        return PrimalDual(answer.primal, price_subset(inverse.dual_value, answer.dual))


@dataclass(frozen=True)
class FullProgram(Reduction[Problem, TransportProgram, RelaxationInverse]):
    """The full OTLP, Eq. 1 of Global Resolution: joint masses of verified token and tuple.

    Source: a `Problem` whose tuples can be listed.
    Result: a `TransportProgram` with V variables per tuple.
    Survives: value, plan, and dual: H* is where the price of a token is 1 above the least price.
    Cost: O(m V) for m tuples.

    Parameters
    ----------
    memory_limit : int
        Maximum size of the list of tuples and the table of conditionals, in bytes.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> program, inverse = reductions.FullProgram().apply(problem)
    >>> program.reward.size, program.exact       # 3 tokens by 9 tuples
    (27, True)
    """

    takes = Problem
    gives = TransportProgram
    keeps = RelaxationInverse

    part = "build"

    memory_limit: int = MEMORY_LIMIT

    def reduce(self, source: Problem) -> tuple[TransportProgram, RelaxationInverse]:
        """Build a variable for each pair of a token and a tuple."""
        size, count = source.vocab_size, source.drafts.tuple_count()
        needed = 8.0 * count * (size + 4 * source.n)
        check_memory(f"the table of {count:,.0f} tuples", needed, self.memory_limit)
        tuples, groups = list_tuples(source, self.memory_limit)
        pairs = TokenSets(
            members=np.tile(np.arange(size), len(groups)),
            offsets=size * np.arange(len(groups) + 1),
            mass=groups.mass,
        )
        reward = np.zeros((len(groups), size))
        reward[groups.rows, groups.members] = 1.0
        # Without slack, rounding could make the tuples' total exceed the target's: infeasible.
        wide = source.target + SLACK
        program = TransportProgram(
            pairs.members, pairs.rows, reward.ravel(), wide, pairs.mass, exact=True
        )
        return program, RelaxationInverse(source, tuples, pairs)

    def lift(
        self, answer: PrimalDual[FloatArray, FloatArray], inverse: RelaxationInverse
    ) -> PrimalDual[TablePlan, Mask]:
        """Compute conditionals from joint masses, shape (m V,), and H* from prices, shape (V,)."""
        subset = price_subset(inverse.problem.dual_value, answer.dual)
        return PrimalDual(lift(inverse, answer.primal), subset)


def price_subset(dual_value: Callable[[Mask], float], prices: FloatArray | None) -> Mask | None:
    """Return the subset H of the dual prices y of the tokens (Global Resolution, Appendix E).

    At a vertex y is 0 or 1, up to a constant in the full form, and H = {y = 1}.  The dual value
    of y is the mean over levels in [0, 1] of the dual value of {y > level}, so the best level is
    never worse than y, even if y is not a vertex.  None stays None.
    """
    if prices is None:
        return None
    above = np.clip(prices - prices.min(), 0.0, 1.0)
    levels = np.unique(np.round(above, 6))
    subsets: list[Mask] = [above > level for level in (levels[:-1] + levels[1:]) / 2.0]
    subsets.append(np.zeros(prices.size, dtype=bool))
    return min(subsets, key=dual_value)
