"""Complementary slackness: the relaxed OTLP falls apart into an inner and an outer system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.drafts import IID, DraftTuples, TokenSets
from otlp.drafts.token_sets import list_sets, merge_by_set, set_count
from otlp.numerics.inclusion import inclusion_probability
from otlp.plan import SetPlan
from otlp.plan.slackness import SlacknessPlan
from otlp.problem import Problem
from otlp.reductions.outer_residuals import level_masses
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import RelaxedOTLP
from otlp.reductions.subset_selection import best_prefix, iid_drafts, subset_selection


class Systems(NamedTuple):
    """The two systems, each a relaxed OTLP of its own."""

    outer: RelaxedOTLP
    inner: RelaxedOTLP


class Side(NamedTuple):
    """What one of the two systems has to do, for i.i.d. drafts.

    Attributes
    ----------
    problem : Problem
    draft : ndarray, shape (V,)
        q.
    ratios : ndarray of int
        The drafted tokens by p/q ascending.
    subset : ndarray of bool, shape (V,)
        H*.
    inside : bool
        Whether the system's tuples are those inside H*.
    accepting : ndarray of bool, shape (V,)
        The tokens that it accepts: those inside H*, or those outside.
    wanted : ndarray, shape (V,)
        Its output.
    ignored : float
        Probability of the other tokens that a draft may be.
    mass : float
        Probability of its tuples.
    """

    problem: Problem
    draft: FloatArray
    ratios: IntArray
    subset: Mask
    inside: bool
    accepting: Mask
    wanted: FloatArray
    ignored: float
    mass: float

    @property
    def name(self) -> str:
        """The paper's word."""
        return "inner" if self.inside else "outer"


class Sides(NamedTuple):
    """What both systems have to do: their outputs add up to the target."""

    outer: Side
    inner: Side


class SlacknessInverse(NamedTuple):
    """The way back: the systems, and what the outer one puts out, unless its flow decides that."""

    problem: Problem
    subset: Mask
    systems: Systems
    outer: FloatArray | None


def split(
    problem: Problem,
    masses: Callable[[FloatArray, FloatArray, int, Mask, IntArray], FloatArray] = level_masses,
) -> Sides:
    """Find H* and divide the target between the tuples inside and outside it.

    Those inside H* accept all of p there, and draw the outer residuals p - p_i where they reject.

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.
    masses : callable
        A solution p_i of Theorem 6.1: `level_masses`, or the paper's `outer_masses`.

    Returns
    -------
    Sides

    Raises
    ------
    UnsupportedProblemError
        For another draft scheme.

    Notes
    -----
    O(V log V).
    """
    drafts, target = iid_drafts(problem), problem.target
    subset, ratios = best_prefix(target, drafts.draft, drafts.n)
    outer = masses(target, drafts.draft, drafts.n, subset, ratios)
    draft, n, outside = drafts.draft, drafts.n, ~subset
    stays, leaves = float((draft * subset).sum()), float((draft * outside).sum())
    known = problem, draft, ratios, subset
    return Sides(
        Side(*known, False, outside, outer, stays, float(inclusion_probability(leaves, n))),
        Side(*known, True, subset, target - outer, 0.0, min(1.0, stays) ** n),
    )


def relaxed_side(side: Side, memory_limit: int = MEMORY_LIMIT) -> RelaxedOTLP:
    """One system of Eq. 6 for i.i.d. drafts, its tuples merged by the tokens that it accepts."""
    tokens = np.flatnonzero(side.accepting & (side.draft > 0.0)).astype(np.int64)
    sets = list_sets(side.draft[tokens], side.problem.n, side.ignored, memory_limit)
    groups = TokenSets(tokens[sets.members], sets.offsets, sets.mass)
    return RelaxedOTLP(np.where(side.accepting, side.wanted, 0.0), groups)


def listed_systems(problem: Problem, subset: Mask, memory_limit: int = MEMORY_LIMIT) -> Systems:
    """Both systems of Eq. 6 for any scheme whose token sets can be listed.

    The outer bounds stay p(i): for schemes without outer residuals in closed form, the outer flow
    says how much of each it takes.

    Parameters
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*, a minimiser of psi.
    memory_limit : int
        Bytes that the list of sets may need.

    Returns
    -------
    Systems
        The outer groups are merged by their tokens outside H*.

    Raises
    ------
    SizeLimitError
        If the list would need more memory.

    Notes
    -----
    O(m n log m) for m sets.
    """
    sets = problem.drafts.enumerate_sets(memory_limit)
    tokens = np.repeat(sets.members[sets.offsets[:-1], None], problem.n, axis=1)
    tokens[sets.rows, np.arange(sets.members.size) - sets.offsets[sets.rows]] = sets.members
    inside = subset[tokens]
    leaves = ~inside.all(axis=1)
    outer, inside = tokens[leaves], inside[leaves]
    first = outer[np.arange(len(outer)), np.argmin(inside, axis=1)]
    outer = np.where(inside, first[:, None], outer)
    systems = []
    for side, drafted, mass in (
        (~subset, outer, sets.mass[leaves]),
        (subset, tokens[~leaves], sets.mass[~leaves]),
    ):
        groups = merge_by_set(DraftTuples(drafted, mass))
        systems.append(RelaxedOTLP(np.where(side, problem.target, 0.0), groups))
    return Systems(*systems)


@dataclass(frozen=True)
class ComplementarySlackness(Reduction[Problem, Systems, SlacknessInverse]):
    """From the OTLP to two systems (Global Resolution, Theorem 5.1), and back.

    S solves the relaxed OTLP if and only if, with H* a minimiser of psi, tuples inside H* give
    to tokens of H* only and fill all of them, and tuples that leave H* give to tokens outside H*
    only and are filled completely (Eq. 6).  For i.i.d. drafts the bounds p(i) of the outer system
    are lowered to masses p_i that it can fill exactly (Theorem 6.1), so that neither system needs
    the other; for other schemes the outer flow says how much it takes of each token.

    Source: a `Problem` whose token sets can be listed.
    Result: `Systems`, two relaxed OTLPs.  The outer groups tuples by their tokens outside H*.
    Survives: value (the sum of both), dual (H*), and plan: each tuple's conditional needs its own
    system alone (Eq. 7, 8).
    Cost: for i.i.d. drafts O(V log V), and O(n^2) a set: binom(k - |H*|, <= n) + binom(|H*|, <= n)
    sets for a support of k tokens, in place of binom(k, <= n).  Else that of subset selection,
    and O(m n log m) for m sets.

    Parameters
    ----------
    memory_limit : int
        Bytes that the list of either system may need.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> systems, inverse = reductions.ComplementarySlackness().apply(problem)
    >>> round(float(systems.inner.target.sum() + systems.outer.target.sum()), 6)
    0.85
    """

    takes = Problem
    gives = Systems
    keeps = SlacknessInverse

    memory_limit: int = MEMORY_LIMIT

    def reduce(self, source: Problem) -> tuple[Systems, SlacknessInverse]:
        """Find H*, fix the outer residuals where they are known, and list both systems."""
        if isinstance(source.drafts, IID):
            outer, inner = split(source)
            systems = Systems(
                relaxed_side(outer, self.memory_limit), relaxed_side(inner, self.memory_limit)
            )
            return systems, SlacknessInverse(source, outer.subset, systems, outer.wanted)
        _, subset = subset_selection(source)
        systems = listed_systems(source, subset, self.memory_limit)
        return systems, SlacknessInverse(source, subset, systems, None)

    def lift(
        self, answer: PrimalDual[tuple[FloatArray, FloatArray], Mask], inverse: SlacknessInverse
    ) -> PrimalDual[SlacknessPlan, Mask]:
        """Join S of the outer and of the inner system, each of shape (nnz,), by Eq. 8."""
        problem, subset, systems, outer = inverse
        outer_flow, inner_flow = answer.primal
        if outer is None:
            flow = np.maximum(outer_flow, 0.0)
            taken = sum_by(systems.outer.groups.members, flow, problem.vocab_size)
            outer = np.minimum(taken, problem.target)
        plan = SlacknessPlan(
            problem,
            subset,
            SetPlan(problem, systems.outer.groups, outer_flow, outer),
            SetPlan(problem, systems.inner.groups, inner_flow, problem.target - outer),
        )
        return PrimalDual(plan, subset)


def system_sizes(problem: Problem) -> tuple[float, float]:
    """Upper bounds on the number of token sets of both systems and of their members; O(V log V)."""
    drafts = problem.drafts
    if not isinstance(drafts, IID):
        return drafts.set_count()
    subset, ratios = best_prefix(problem.target, drafts.draft, drafts.n)
    inside = int(np.count_nonzero(subset))
    inner, outer = set_count(inside, drafts.n), set_count(ratios.size - inside, drafts.n)
    return inner[0] + outer[0], inner[1] + outer[1]
