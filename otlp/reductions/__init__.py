"""Reductions from a problem to a smaller or simpler problem, and back; one file per reduction.

Each reduction has ``apply(problem) -> (result, inverse)`` and ``invert(answer, inverse)``, both
pure functions.  An answer is a pair: a plan or a flow, and the proof of its optimality.  A `Chain`
of reductions is a reduction.  Docstrings state source, result, what survives, and cost.
"""

if __name__ != "otlp.reductions":
    raise ImportError(f"import otlp.reductions, not {__name__}, whose classes would be copies")

from otlp.reductions.canonical_decomposition import CanonicalDecomposition
from otlp.reductions.chain import Chain
from otlp.reductions.complementary_slackness import ComplementarySlackness
from otlp.reductions.flow_network import FlowNetwork, NetworkReduction
from otlp.reductions.merge_tuples import MergeTuples
from otlp.reductions.pairwise_cut import PairwiseCut
from otlp.reductions.reduction import PrimalDual, Reduction
from otlp.reductions.relaxation import Relaxation, RelaxedOTLP
from otlp.reductions.support import Support
from otlp.reductions.transport_program import FullProgram, RelaxedProgram, TransportProgram

__all__ = [
    "CanonicalDecomposition",
    "Chain",
    "ComplementarySlackness",
    "FlowNetwork",
    "FullProgram",
    "MergeTuples",
    "NetworkReduction",
    "PairwiseCut",
    "PrimalDual",
    "Reduction",
    "Relaxation",
    "RelaxedOTLP",
    "RelaxedProgram",
    "Support",
    "TransportProgram",
]
