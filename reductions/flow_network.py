"""The relaxed OTLP as a maximum flow from tokens to groups of tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.distribution import FloatArray, IntArray
from otlp.errors import Capability
from otlp.reductions.reduction import Reduction
from otlp.reductions.relaxation import RelaxedOTLP

__all__ = ["FlowNetwork", "NetworkInverse", "NetworkReduction"]


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
    """

    tails: IntArray
    heads: IntArray
    capacities: FloatArray
    tokens: int
    groups: int

    @property
    def source(self) -> int:
        """Node of the source."""
        return self.tokens + self.groups

    @property
    def sink(self) -> int:
        """Node of the sink."""
        return self.tokens + self.groups + 1


@dataclass(frozen=True)
class NetworkInverse:
    """The way back: where the token-to-group arcs stand."""

    first: int
    last: int


class NetworkReduction(Reduction[RelaxedOTLP, FlowNetwork, NetworkInverse, FloatArray, FloatArray]):
    """From the relaxed OTLP to a bipartite flow network (Global Resolution, section 5.2).

    Source: a `RelaxedOTLP`.
    Result: a `FlowNetwork`; S is the flow on the arcs from tokens to groups.
    Survives: value (of the flow), plan, and dual: the minimum cut leaves on the sink's side the
    tokens of H*.
    Cost: O(V + nnz).
    """

    def accepts(self, source: RelaxedOTLP) -> Capability:
        """Accept every relaxed OTLP."""
        return Capability(True)

    def apply(self, source: RelaxedOTLP) -> tuple[FlowNetwork, NetworkInverse]:
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
        return network, NetworkInverse(count, count + groups.members.size)

    def invert(self, answer: FloatArray, inverse: NetworkInverse) -> FloatArray:
        """Read S, shape (nnz,), off the arc flows."""
        return answer[inverse.first : inverse.last]
