"""Subset selection for two independent drafts as a minimum cut among the tokens themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, Mask
from otlp.errors import Capability, fits
from otlp.problem import Problem
from otlp.reductions.flow_network import TOLERANCES, FlowNetwork
from otlp.reductions.reduction import PrimalDual, Reduction

BYTES_PER_PAIR = 100.0


class PairwiseInverse(NamedTuple):
    """The way back: the problem and the network whose cut is asked for."""

    problem: Problem
    network: FlowNetwork


@dataclass(frozen=True)
class PairwiseCut(Reduction[Problem, FlowNetwork]):
    """From psi of two independent drafts to a network with an arc for each pair of tokens.

    psi(H) = p(H) - q1(H) q2(H) is quadratic in the indicator x of H (Global Resolution, Appendix
    D), and since both drafts sum to one it is a sum of nonnegative terms up to a constant:

        psi = sum_i (p_i - (q1_i + q2_i) / 2) x_i + sum_{i<j} w_ij |x_i - x_j| / 2,
        w_ij = q1_i q2_j + q1_j q2_i,

    which is the capacity of a cut with the tokens of H on the sink's side.

    Source: a `Problem` with two independent drafts, different or not.
    Result: a `FlowNetwork` with V (V - 1) arcs between tokens, of which the maximum flow is asked
    for; each token has a node of its own before the sink.
    Survives: value and dual (H*), not the plan: for that take `MergeTuples` and
    `NetworkReduction`, whose network has a node for each pair.
    Cost: O(V^2) memory; the smallest network that is known for the value.

    Parameters
    ----------
    memory_limit : int
        Bytes that the network may need.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> network, inverse = reductions.PairwiseCut().apply(problem)
    >>> network.tokens
    3
    """

    memory_limit: int = MEMORY_LIMIT

    def accepts(self, source: Problem) -> Capability:
        """Accept two independent drafts whose network fits the memory limit."""
        if source.drafts.independent_drafts is None or source.n != 2:
            return Capability(
                False,
                f"psi is quadratic for two independent drafts only, not for {source.drafts!r}: "
                "use subset_selection",
            )
        needed = BYTES_PER_PAIR * source.vocab_size**2
        what = f"the network of {source.vocab_size}^2 arcs (subset_selection needs O(V))"
        return fits(what, needed, self.memory_limit)

    def apply(self, source: Problem) -> tuple[FlowNetwork, PairwiseInverse]:
        """Write out arcs and capacities."""
        self.accepts(source).require("pairwise cut")
        pair = source.drafts.independent_drafts
        assert pair is not None, "accepted"
        first, second = pair
        size = source.vocab_size
        tokens = np.arange(size)
        tails, heads = np.nonzero(~np.eye(size, dtype=bool))
        between = (first[tails] * second[heads] + first[heads] * second[tails]) / 2.0
        price = source.target - (first + second) / 2.0
        to_sink = np.maximum(-price, 0.0)
        network = FlowNetwork(
            np.concatenate((np.full(size, 2 * size), tails, tokens, size + tokens)),
            np.concatenate((tokens, heads, size + tokens, np.full(size, 2 * size + 1))),
            np.concatenate((np.maximum(price, 0.0), between, to_sink, to_sink)),
            size,
            size,
        )
        return network, PairwiseInverse(source, network)

    def invert(self, answer: PrimalDual, inverse: PairwiseInverse) -> PrimalDual:
        """Read H* off the flow, shape (arcs,): the tokens that no residual path reaches.

        In floats a full arc may seem to have room, so a few tolerances are tried, and the subset
        of least dual value is taken.
        """
        problem, network = inverse
        subsets = (_unreached(network, answer.primal, tolerance) for tolerance in TOLERANCES)
        return PrimalDual(None, min(subsets, key=problem.dual_value))


def _unreached(network: FlowNetwork, flow: FloatArray, tolerance: float) -> Mask:
    forward = network.capacities - flow > tolerance
    backward = flow > tolerance
    tails = np.concatenate((network.tails[forward], network.heads[backward]))
    heads = np.concatenate((network.heads[forward], network.tails[backward]))
    count = network.sink + 1
    graph = scipy.sparse.coo_array(
        (np.ones(tails.size), (tails, heads)), shape=(count, count)
    ).tocsr()
    reached = scipy.sparse.csgraph.breadth_first_order(
        graph, network.source, return_predecessors=False
    )
    unreached = np.ones(count, dtype=bool)
    unreached[reached] = False
    return unreached[: network.tokens]
