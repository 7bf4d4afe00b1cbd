"""Complementary slackness: the relaxed OTLP splits into an inner and an outer system."""

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
from otlp.reductions.subset_selection import best_prefix, find_subset, iid_drafts


class Systems(NamedTuple):
    """The outer and the inner system, each a relaxed OTLP."""

    outer: RelaxedOTLP
    inner: RelaxedOTLP


class Side(NamedTuple):
    """Data of one of the two systems, for i.i.d. drafts.

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
        Whether the tuples of the system are the tuples inside H*.
    accepting : ndarray of bool, shape (V,)
        Tokens that the system accepts: the tokens inside H*, or the tokens outside H*.
    wanted : ndarray, shape (V,)
        Output of the system.
    ignored : float
        Probability of the tokens that tuples may contain but the system does not accept.
    mass : float
        Probability of the system's tuples.
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
        """Name of the system in the paper."""
        return "inner" if self.inside else "outer"


class Sides(NamedTuple):
    """Data of both systems; their outputs add up to the target."""

    outer: Side
    inner: Side


class SlacknessInverse(NamedTuple):
    """Inverse data: the systems, and the output of the outer one (None: determined by its flow)."""

    problem: Problem
    subset: Mask
    systems: Systems
    outer: FloatArray | None


def split(
    problem: Problem,
    masses: Callable[[FloatArray, FloatArray, int, Mask, IntArray], FloatArray] = level_masses,
) -> Sides:
    """Find H*, and divide the target between the tuples inside H* and the other tuples.

    Tuples inside H* accept all of p on H*, and on rejection draw from the outer residuals p - p_i.

    Parameters
    ----------
    problem : Problem
        Problem with i.i.d. drafts.
    masses : callable
        Function for a solution p_i of Theorem 6.1: `level_masses`, or the paper's `outer_masses`.

    Returns
    -------
    Sides

    Raises
    ------
    UnsupportedProblemError
        If the drafts are not i.i.d.

    Notes
    -----
    O(V log V).
    """
    drafts, target = iid_drafts(problem), problem.target
    subset, ratios = best_prefix(target, drafts.draft, drafts.n)
    outer = masses(target, drafts.draft, drafts.n, subset, ratios)
    draft, n, outside = drafts.draft, drafts.n, ~subset
    stays, leaves = float((draft * subset).sum()), float((draft * outside).sum())
    common = problem, draft, ratios, subset
    return Sides(
        Side(*common, False, outside, outer, stays, float(inclusion_probability(leaves, n))),
        Side(*common, True, subset, target - outer, 0.0, min(1.0, stays) ** n),
    )


def relaxed_side(side: Side, memory_limit: int = MEMORY_LIMIT) -> RelaxedOTLP:
    """Return one system of Eq. 6 for i.i.d. drafts, with tuples merged by their accepted tokens."""
    tokens = np.flatnonzero(side.accepting & (side.draft > 0.0)).astype(np.int64)
    sets = list_sets(side.draft[tokens], side.problem.n, side.ignored, memory_limit)
    groups = TokenSets(tokens[sets.members], sets.offsets, sets.mass)
    return RelaxedOTLP(np.where(side.accepting, side.wanted, 0.0), groups)


def listed_systems(problem: Problem, subset: Mask, memory_limit: int = MEMORY_LIMIT) -> Systems:
    """Return both systems of Eq. 6 for any scheme whose token sets can be listed.

    The outer bounds stay p(i): without outer residuals in closed form, the outer flow determines
    the accepted mass of each token.

    Parameters
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*, a minimiser of psi.
    memory_limit : int
        Maximum size of the list of sets, in bytes.

    Returns
    -------
    Systems
        Outer groups are merged by their tokens outside H*.

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
    outer = np.where(inside, np.where(inside, -1, outer).max(axis=1, keepdims=True), outer)
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

    Let H* be a minimiser of psi.  S solves the relaxed OTLP if and only if tuples inside H* verify
    tokens of H* only and fill all of these, and tuples that leave H* verify tokens outside H* only
    and are filled completely (Eq. 6).  For i.i.d. drafts the bounds p(i) of the outer system are
    lowered to masses p_i that it can fill exactly (Theorem 6.1), so that the systems are
    independent; for other schemes the outer flow determines the accepted mass of each token.

    Source: a `Problem` whose token sets can be listed.
    Result: `Systems`, two relaxed OTLPs.  The outer groups tuples by their tokens outside H*.
    Survives: value (the sum of both), dual (H*), and plan: the conditional of a tuple depends on
    its own system only (Eq. 7, 8).
    Cost: for i.i.d. drafts O(V log V), and O(n^2) per set: binom(k - |H*|, <= n) +
    binom(|H*|, <= n) sets for a support of k tokens, instead of binom(k, <= n).  For other drafts
    the cost of subset selection, and O(m n log m) for m sets.

    Parameters
    ----------
    memory_limit : int
        Maximum size of the list of either system, in bytes.

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
        """Find H*, fix the outer residuals if known in closed form, and list both systems."""
        if isinstance(source.drafts, IID):
            sides = split(source)
            systems = Systems(*(relaxed_side(side, self.memory_limit) for side in sides))
            outer = sides.outer
            return systems, SlacknessInverse(source, outer.subset, systems, outer.wanted)
        subset, _ = find_subset(source)  # The verifier checks the bound.
        systems = listed_systems(source, subset, self.memory_limit)
        return systems, SlacknessInverse(source, subset, systems, None)

    def lift(
        self, answer: PrimalDual[tuple[FloatArray, FloatArray], Mask], inverse: SlacknessInverse
    ) -> PrimalDual[SlacknessPlan, Mask]:
        """Join S of the outer and the inner system, each of shape (nnz,), by Eq. 8."""
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
    """Return upper bounds on the number of token sets of both systems and of their members.

    O(V log V).
    """
    drafts = problem.drafts
    if not isinstance(drafts, IID):
        return drafts.set_count()
    subset, ratios = best_prefix(problem.target, drafts.draft, drafts.n)
    inside = int(np.count_nonzero(subset))
    inner, outer = set_count(inside, drafts.n), set_count(ratios.size - inside, drafts.n)
    return inner[0] + outer[0], inner[1] + outer[1]
