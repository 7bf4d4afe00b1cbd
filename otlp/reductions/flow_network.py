"""The relaxed OTLP as a maximum flow from tokens to groups of tuples, with minimum cut H*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otlp.distribution import FloatArray, IntArray, Mask
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import RelaxedOTLP


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """A directed network with float capacities.

    Nodes: tokens 0 .. V-1, groups V .. V+m-1, then source and sink.  Arcs, in this order:
    source to tokens (V), tokens to groups (nnz, group by group), groups to sink (m).

    Attributes
    ----------
    tails, heads : ndarray, shape (V + nnz + m,), int64
    capacities : ndarray, shape (V + nnz + m,)
        All finite: an arc of unbounded capacity has the smaller capacity of its neighbours, which
        changes no flow and prevents engines from returning NaN.
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
        """Slice of the arcs from tokens to groups, whose flow is S."""
        return slice(self.tokens, self.capacities.size - self.groups)

    @property
    def source(self) -> int:
        """Index of the source node."""
        return self.tokens + self.groups

    @property
    def sink(self) -> int:
        """Index of the sink node."""
        return self.tokens + self.groups + 1


class NetworkInverse(NamedTuple):
    """Inverse data: the relaxed OTLP, and the arcs whose flow is S."""

    relaxed: RelaxedOTLP
    middle: slice


class NetworkReduction(Reduction[RelaxedOTLP, FlowNetwork, NetworkInverse]):
    """From the relaxed OTLP to a bipartite flow network (Global Resolution, section 5.2).

    Source: a `RelaxedOTLP`.
    Result: a `FlowNetwork`; S is the flow on the arcs from tokens to groups.
    Survives: value (of the flow), plan, and dual: the tokens of H* are on the sink's side of the
    minimum cut.
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

    takes = RelaxedOTLP
    gives = FlowNetwork
    keeps = NetworkInverse

    part = "build"

    def reduce(self, source: RelaxedOTLP) -> tuple[FlowNetwork, NetworkInverse]:
        """Build the arcs and capacities."""
        network = network_of(source)
        return network, NetworkInverse(source, network.middle)

    def lift(
        self, answer: PrimalDual[FloatArray, Mask], inverse: NetworkInverse
    ) -> PrimalDual[FloatArray, Mask]:
        """Extract S, shape (nnz,), from the flow on the arcs, and H* from the minimum cut."""
        relaxed, middle = inverse
        subset = answer.dual
        if subset is not None:
            subset = subset[: relaxed.target.size]
            if relaxed.dual_value(subset) >= 1.0:  # the empty set has the bound 1 too
                subset = np.zeros_like(subset)
        return PrimalDual(answer.primal[middle], subset)


def network_of(relaxed: RelaxedOTLP) -> FlowNetwork:
    """Return the flow network of a relaxed OTLP; see `NetworkReduction`."""
    target, groups = relaxed.target, relaxed.groups
    count, size, rows = target.size, groups.mass.size, groups.rows
    tokens, right = np.arange(count), count + np.arange(size)
    tails = np.concatenate((np.full(count, count + size), groups.members, right))
    heads = np.concatenate((tokens, count + rows, np.full(size, count + size + 1)))
    middle = np.minimum(target[groups.members], groups.mass[rows])
    capacities = np.concatenate((target, middle, groups.mass))
    return FlowNetwork(tails.astype(np.int64), heads.astype(np.int64), capacities, count, size)
