"""The relaxed OTLP as a maximum flow from tokens to groups of tuples; its minimum cut is H*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask, sum_by
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import RelaxedOTLP

TOLERANCES = (1e-15, 1e-13, 1e-11, 1e-9)
"""Flows and slacks up to this count as zero, where the tolerances before it prove nothing."""

GAP = 1e-12
"""A bound this close to the flow's value proves enough; no larger tolerance is tried."""


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """A directed network with float capacities.

    Nodes: tokens 0 .. V-1, groups V .. V+m-1, then source and sink.  Arcs, in this order:
    source to tokens (V), tokens to groups (nnz, group by group), groups to sink (m).

    Attributes
    ----------
    tails, heads : ndarray, shape (V + nnz + m,), int64
    capacities : ndarray, shape (V + nnz + m,)
        All finite: an arc of unbounded capacity gets the smaller of its neighbours' instead,
        which changes no flow and keeps engines from returning NaN.
    tokens, groups : int
        V and m.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> chain = reductions.Chain(reductions.MergeTuples(), reductions.NetworkReduction())
    >>> network, inverse = chain.apply(problem)
    >>> network.tokens, network.groups, network.source, network.sink
    (3, 6, 9, 10)
    """

    tails: IntArray
    heads: IntArray
    capacities: FloatArray
    tokens: int
    groups: int

    @property
    def middle(self) -> slice:
        """The arcs from tokens to groups, whose flow is S."""
        return slice(self.tokens, self.capacities.size - self.groups)

    @property
    def source(self) -> int:
        """Node of the source."""
        return self.tokens + self.groups

    @property
    def sink(self) -> int:
        """Node of the sink."""
        return self.tokens + self.groups + 1


class NetworkReduction(Reduction[RelaxedOTLP, FlowNetwork]):
    """From the relaxed OTLP to a bipartite flow network (Global Resolution, section 5.2).

    Source: a `RelaxedOTLP`.
    Result: a `FlowNetwork`; S is the flow on the arcs from tokens to groups.
    Survives: value (of the flow), plan, and dual: the minimum cut of a maximum flow leaves on the
    sink's side the tokens of H*.
    Cost: O(V + nnz).

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> relaxed, _ = reductions.MergeTuples().apply(problem)
    >>> network, _ = reductions.NetworkReduction().apply(relaxed)
    >>> network.tails.size == network.tokens + relaxed.groups.members.size + network.groups
    True
    """

    part: ClassVar[str] = "build"

    def apply(self, source: RelaxedOTLP) -> tuple[FlowNetwork, tuple[RelaxedOTLP, slice]]:
        """Write out arcs and capacities."""
        target, groups = source.target, source.groups
        count, size = target.size, len(groups)
        tokens, right = np.arange(count), count + np.arange(size)
        tails = np.concatenate((np.full(count, count + size), groups.members, right))
        heads = np.concatenate((tokens, count + groups.rows, np.full(size, count + size + 1)))
        middle = np.minimum(target[groups.members], groups.mass[groups.rows])
        capacities = np.concatenate((target, middle, groups.mass))
        network = FlowNetwork(
            tails.astype(np.int64), heads.astype(np.int64), capacities, count, size
        )
        return network, (source, network.middle)

    def invert(self, answer: PrimalDual, inverse: tuple[RelaxedOTLP, slice]) -> PrimalDual:
        """Read S, shape (nnz,), off the flow on the arcs, and H* off its minimum cut."""
        relaxed, middle = inverse
        flow = answer.primal[middle]
        return PrimalDual(flow, minimum_cut(relaxed, flow))


def minimum_cut(relaxed: RelaxedOTLP, flow: FloatArray) -> Mask:
    """H* of an optimal solution S of the relaxed OTLP, for any draft scheme.

    Parameters
    ----------
    relaxed : RelaxedOTLP
    flow : ndarray, shape (nnz,)
        S, optimal up to rounding.

    Returns
    -------
    ndarray of bool, shape (V,)
        The subset of least `RelaxedOTLP.dual_value` among the cuts read off at a few tolerances,
        since in floats a full arc may seem to have room.

    Notes
    -----
    O(nnz) for each step of a breadth-first search, of which there are a few.
    """
    value = float(flow.sum())
    best, least = np.zeros(relaxed.target.size, dtype=bool), 1.0
    for tolerance in TOLERANCES:
        subset = tokens_beyond_cut(relaxed, flow, tolerance)
        bound = relaxed.dual_value(subset)
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
    carries = flow > tolerance
    used = sum_by(members, flow, relaxed.target.size)
    reached: Mask = relaxed.target - used > tolerance
    count = 0
    while count < (count := int(reached.sum())):
        groups = np.logical_or.reduceat(reached[members], offsets[:-1])
        reached[members[groups[relaxed.groups.rows] & carries]] = True
    return ~reached
