"""Complementary slackness: the relaxed OTLP falls apart into an inner and an outer system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, Mask, sum_by
from otlp.drafts import IID, DraftTuples, TokenSets
from otlp.drafts.token_sets import MEMORY_LIMIT, list_sets, merge_by_set, set_count
from otlp.errors import Capability, UnsupportedProblemError
from otlp.plan.slackness import FlowSystem, SlacknessPlan
from otlp.problem import Problem
from otlp.reductions.outer_residuals import level_masses
from otlp.reductions.reduction import Reduction
from otlp.reductions.relaxation import RelaxedOTLP
from otlp.reductions.subset_selection import best_prefix

__all__ = [
    "ComplementarySlackness",
    "SlacknessInverse",
    "Split",
    "Systems",
    "best_subset",
    "inner_flow",
    "inner_system",
    "listed_systems",
    "outer_flow",
    "outer_system",
    "split",
    "split_by_flow",
]


ROUNDING = 1e-14
"""How far alpha* may be below one and still be one."""


class Systems(NamedTuple):
    """The two systems, each a relaxed OTLP of its own."""

    outer: RelaxedOTLP
    inner: RelaxedOTLP


@dataclass(frozen=True, eq=False)
class Split:
    """The target, divided between the tuples inside H* and those that leave it.

    Attributes
    ----------
    problem : Problem
    subset : ndarray of bool, shape (V,)
        H*.
    outer_wanted : ndarray, shape (V,)
        Output of the tuples that leave H*: the p_i of Theorem 6.1 outside H*, 0 inside.
    inner_wanted : ndarray, shape (V,)
        Output of the tuples inside H*: p inside H*, all of it accepted, and the outer residuals
        p - p_i outside, drawn where a tuple is rejected.
    """

    problem: Problem
    subset: Mask
    outer_wanted: FloatArray
    inner_wanted: FloatArray

    @property
    def outer_mass(self) -> float:
        """Probability of the tuples that leave H*."""
        return self.problem.drafts.mass_touching(~self.subset)

    @property
    def inner_mass(self) -> float:
        """Probability of the tuples inside H*."""
        return self.problem.drafts.mass_within(self.subset)


@dataclass(frozen=True, eq=False)
class SlacknessInverse:
    """The way back: the divided target, and the sets of both systems."""

    split: Split
    systems: Systems


def iid_drafts(problem: Problem) -> IID:
    """The drafts, if they are i.i.d.

    Raises
    ------
    UnsupportedProblemError
        For another scheme.
    """
    if not isinstance(problem.drafts, IID):
        raise UnsupportedProblemError(not_iid(problem))
    return problem.drafts


def not_iid(problem: Problem) -> str:
    """Why a method of section 6 does not take these drafts, and what does."""
    return (
        f"the drafts are {problem.drafts!r}: H* and the outer residuals are known for i.i.d. "
        "drafts only; use max-flow where the tuples can be listed, or orderings"
    )


def split(
    problem: Problem,
    masses: Callable[[FloatArray, FloatArray, int, Mask], FloatArray] = level_masses,
) -> Split:
    """Find H* and divide the target between the tuples inside and outside it.

    Parameters
    ----------
    problem : Problem
        With i.i.d. drafts.
    masses : callable
        A solution p_i of Theorem 6.1: `level_masses`, or the paper's `outer_masses`.

    Returns
    -------
    Split

    Raises
    ------
    UnsupportedProblemError
        For another draft scheme.

    Notes
    -----
    O(V log V).
    """
    drafts, target = iid_drafts(problem), problem.target
    subset = best_subset(problem)
    outer = masses(target, drafts.draft, drafts.n, subset)
    return Split(problem, subset, outer, target - outer)


def best_subset(problem: Problem) -> Mask:
    """H* for i.i.d. drafts; empty where it is so by all but rounding, as psi(H*) < 0 must hold."""
    drafts = iid_drafts(problem)
    subset = best_prefix(problem.target, drafts.draft, drafts.n)
    if problem.dual_value(subset) > 1.0 - ROUNDING:
        subset = np.zeros_like(subset)
    return subset


def outer_system(parts: Split, memory_limit: int = MEMORY_LIMIT) -> RelaxedOTLP:
    """Outer system (Eq. 6a), its tuples merged by their tokens outside H*."""
    ignored = float(iid_drafts(parts.problem).draft[parts.subset].sum())
    sets = _sets(parts.problem, ~parts.subset, ignored, memory_limit)
    return RelaxedOTLP(parts.outer_wanted, sets)


def inner_system(parts: Split, memory_limit: int = MEMORY_LIMIT) -> RelaxedOTLP:
    """Inner system (Eq. 6b), its tuples merged by their tokens."""
    sets = _sets(parts.problem, parts.subset, 0.0, memory_limit)
    return RelaxedOTLP(np.where(parts.subset, parts.problem.target, 0.0), sets)


def listed_systems(problem: Problem, subset: Mask, memory_limit: int = MEMORY_LIMIT) -> Systems:
    """Both systems of Eq. 6 for any scheme whose token sets can be listed.

    The outer bounds stay p(i): for schemes without outer residuals in closed form, the outer flow
    says how much of each it takes (`split_by_flow`).

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
        groups, _ = merge_by_set(DraftTuples(drafted, mass))
        systems.append(RelaxedOTLP(np.where(side, problem.target, 0.0), groups))
    return Systems(*systems)


def split_by_flow(problem: Problem, subset: Mask, outer: RelaxedOTLP, flow: FloatArray) -> Split:
    """Divide the target by what the outer flow, shape (nnz,), takes of each token."""
    taken = sum_by(outer.groups.members, np.maximum(flow, 0.0), problem.vocab_size)
    taken = np.minimum(taken, problem.target)
    return Split(problem, subset, taken, problem.target - taken)


def outer_flow(parts: Split, system: RelaxedOTLP, flow: FloatArray) -> FlowSystem:
    """Turn S of the outer system into its slices (Eq. 8)."""
    target = parts.problem.target
    return FlowSystem(parts.outer_wanted, parts.outer_mass, system.groups, flow, target)


def inner_flow(parts: Split, system: RelaxedOTLP, flow: FloatArray) -> FlowSystem:
    """Turn S of the inner system into its slices (Eq. 8)."""
    target = parts.problem.target
    return FlowSystem(parts.inner_wanted, parts.inner_mass, system.groups, flow, target)


def _sets(problem: Problem, side: Mask, ignored: float, memory_limit: int) -> TokenSets:
    draft = iid_drafts(problem).draft
    tokens = np.flatnonzero(side & (draft > 0.0)).astype(np.int64)
    sets = list_sets(draft[tokens], problem.n, ignored, memory_limit)
    return TokenSets(tokens[sets.members], sets.offsets, sets.mass)


@dataclass(frozen=True)
class ComplementarySlackness(
    Reduction[Problem, Systems, SlacknessInverse, tuple[FloatArray, FloatArray], SlacknessPlan]
):
    """From the OTLP to two independent systems (Global Resolution, Theorem 5.1), and back.

    S solves the relaxed OTLP if and only if, with H* a minimiser of psi, tuples inside H* give
    to tokens of H* only and fill all of them, and tuples that leave H* give to tokens outside H*
    only and are filled completely (Eq. 6).  The bounds p(i) of the outer system are lowered to
    masses p_i that it can fill exactly (Theorem 6.1), so that neither system needs the other.

    Source: a `Problem` with i.i.d. drafts.
    Result: `Systems`, two relaxed OTLPs.  The outer groups tuples by their tokens outside H*.
    Survives: value (the sum of both), dual (H*), and plan: each tuple's slice needs its own
    system alone (Eq. 7, 8).
    Cost: O(V log V), and O(n^2) a set: binom(k - |H*|, <= n) + binom(|H*|, <= n) sets for a
    support of k tokens, in place of binom(k, <= n).

    Parameters
    ----------
    memory_limit : int
        Bytes that the list of either system may need.
    """

    memory_limit: int = MEMORY_LIMIT

    def accepts(self, source: Problem) -> Capability:
        """Accept i.i.d. drafts whose sets, at worst all on one side of H*, fit the memory."""
        if not isinstance(source.drafts, IID):
            return Capability(False, not_iid(source))
        subset = best_subset(source)
        drafted = source.drafts.support
        needed = 0.0
        for side in (subset, ~subset):
            sets, members = set_count(int(np.count_nonzero(side & drafted)), source.n)
            needed = max(needed, 8.0 * (2.0 * sets + 2.0 * members))
        if needed > self.memory_limit:
            return Capability(
                False,
                f"the token sets of one system would need {needed / 1024**2:,.0f} MiB, more than "
                f"memory_limit = {self.memory_limit / 1024**2:,.0f} MiB: cut the draft with "
                "top_k, or use martingale",
            )
        return Capability(True)

    def apply(self, source: Problem) -> tuple[Systems, SlacknessInverse]:
        """Find H*, fix the outer residuals, and list both systems."""
        parts = split(source)
        systems = Systems(
            outer_system(parts, self.memory_limit), inner_system(parts, self.memory_limit)
        )
        return systems, SlacknessInverse(parts, systems)

    def invert(
        self, answer: tuple[FloatArray, FloatArray], inverse: SlacknessInverse
    ) -> SlacknessPlan:
        """Join S of the outer and of the inner system, each of shape (nnz,), by Eq. 8."""
        parts, systems = inverse.split, inverse.systems
        return SlacknessPlan(
            parts.problem,
            parts.subset,
            lambda: outer_flow(parts, systems.outer, answer[0]),
            lambda: inner_flow(parts, systems.inner, answer[1]),
        )
