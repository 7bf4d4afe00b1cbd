"""Subset selection for two independent drafts as a minimum cut in a network of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otlp.capability import fits
from otlp.checks import MEMORY_LIMIT
from otlp.distribution import FloatArray, Mask
from otlp.errors import UnsupportedProblemError
from otlp.problem import Problem
from otlp.reductions.flow_network import FlowNetwork
from otlp.reductions.reduction import PrimalDual, Reduction

BYTES_PER_PAIR = 100.0


@dataclass(frozen=True)
class PairwiseCut(Reduction[Problem, FlowNetwork, int]):
    """From psi of two independent drafts to a network with an arc for each pair of tokens.

    psi(H) = p(H) - q1(H) q2(H) is quadratic in the indicator x of H (Global Resolution, Appendix
    D), and since both drafts sum to one it is a sum of nonnegative terms up to a constant:

        psi = sum_i (p_i - (q1_i + q2_i) / 2) x_i + sum_{i<j} w_ij |x_i - x_j| / 2,
        w_ij = q1_i q2_j + q1_j q2_i,

    which is the capacity of a cut with the tokens of H on the sink's side.

    Source: a `Problem` with two independent drafts, equal or different.
    Result: a `FlowNetwork` with V (V - 1) arcs between tokens, whose maximum flow is to be found;
    each token has one further node before the sink.
    Survives: value and dual (H*), but not the plan; for the plan use `MergeTuples` and
    `NetworkReduction`, whose network has a node for each pair.
    Cost: O(V^2) memory; the smallest known network for the value.

    Parameters
    ----------
    memory_limit : int
        Maximum size of the network, in bytes.

    Raises
    ------
    UnsupportedProblemError
        From `apply`, if the drafts are not two independent drafts, or if the network exceeds the
        limit.

    Examples
    --------
    >>> import otlp
    >>> from otlp import reductions
    >>> from otlp.solvers.engines import FLOW_ENGINES
    >>> problem = otlp.Problem([0.1, 0.6, 0.3], otlp.IID([0.5, 0.3, 0.2], n=2))
    >>> network, inverse = reductions.PairwiseCut().apply(problem)
    >>> answer = FLOW_ENGINES["ortools"](network)
    >>> reductions.PairwiseCut().invert(answer, inverse).dual.tolist()
    [True, False, False]
    """

    takes = Problem
    gives = FlowNetwork
    keeps = int

    part = "build"

    memory_limit: int = MEMORY_LIMIT

    def reduce(self, source: Problem) -> tuple[FlowNetwork, int]:
        """Build the arcs and capacities."""
        pair, size = source.drafts._independent, source.vocab_size
        if pair is None or source.n != 2:
            raise UnsupportedProblemError(
                f"drafts must be two independent drafts, got {source.drafts}: psi is not "
                "quadratic for other drafts; use subset_selection"
            )
        what = f"the network of {size}^2 arcs (subset_selection needs O(V))"
        fits(what, BYTES_PER_PAIR * size**2, self.memory_limit).require("pairwise cut")
        first, second = pair
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
        return network, size

    def lift(self, answer: PrimalDual[FloatArray, Mask], inverse: int) -> PrimalDual[None, Mask]:
        """Return H*, the tokens on the sink's side of the cut, without a plan."""
        return PrimalDual(None, None if answer.dual is None else answer.dual[:inverse])
