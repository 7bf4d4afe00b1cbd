"""The proof of optimality that an optimal flow carries: its minimum cut, as a subset of tokens."""

from __future__ import annotations

import numpy as np

from otlp.distribution import FloatArray, Mask, sum_by
from otlp.problem import Problem
from otlp.reductions.relaxation import RelaxedOTLP

__all__ = ["minimum_cut", "tokens_beyond_cut"]

TOLERANCES = (1e-15, 1e-13, 1e-11, 1e-9)
"""Flows and slacks up to this count as zero, where the tolerances before it prove nothing."""

GAP = 1e-12
"""A bound this close to the flow's value proves enough; no larger tolerance is tried."""


def minimum_cut(problem: Problem, relaxed: RelaxedOTLP, flow: FloatArray) -> Mask:
    """H* of an optimal solution S of the relaxed OTLP, for any draft scheme.

    Parameters
    ----------
    problem : Problem
    relaxed : RelaxedOTLP
        The problem with its tuples or token sets as groups.
    flow : ndarray, shape (nnz,)
        S, optimal up to rounding.

    Returns
    -------
    ndarray of bool, shape (V,)
        The subset of least ``problem.dual_value`` among the cuts read off at a few tolerances,
        since in floats a full arc may seem to have room.

    Notes
    -----
    O(nnz) for each step of a breadth-first search, of which there are a few.
    """
    value = float(flow.sum())
    best, least = np.zeros(problem.vocab_size, dtype=bool), 1.0
    for tolerance in TOLERANCES:
        subset = tokens_beyond_cut(relaxed, flow, tolerance)
        bound = problem.dual_value(subset)
        if bound < least:
            best, least = subset, bound
        if least - value <= GAP:
            break
    return best


def tokens_beyond_cut(relaxed: RelaxedOTLP, flow: FloatArray, tolerance: float) -> Mask:
    """Tokens that no residual path from the source reaches: y = 1 in Appendix E's dual.

    The source reaches tokens whose mass is not used up; a token all groups that have it, since
    its arcs are unbounded; and a group the tokens from which it has flow, to be taken back.
    """
    members, offsets = relaxed.groups.members, relaxed.groups.offsets
    lengths = np.diff(offsets)
    carries = flow > tolerance
    used = sum_by(members, flow, relaxed.target.size)
    reached: Mask = relaxed.target - used > tolerance
    count = 0
    while count < (count := int(reached.sum())):
        groups = np.logical_or.reduceat(reached[members], offsets[:-1])
        reached[members[np.repeat(groups, lengths) & carries]] = True
    return ~reached
