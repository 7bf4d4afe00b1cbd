"""Reductions: from a problem to a smaller or simpler one, and back.  One file a reduction.

Each has ``accepts(problem)``, ``apply(problem) -> (result, inverse)`` and
``invert(answer, inverse)``, all pure, and a docstring that says source, result, what survives
and the cost.
"""

from otlp.reductions.complementary_slackness import ComplementarySlackness
from otlp.reductions.flow_network import FlowNetwork, NetworkReduction
from otlp.reductions.merge_tuples import MergeTuples
from otlp.reductions.pairwise_cut import PairwiseCut
from otlp.reductions.relaxation import Relaxation, RelaxedOTLP
from otlp.reductions.support import Support

__all__ = [
    "ComplementarySlackness",
    "FlowNetwork",
    "MergeTuples",
    "NetworkReduction",
    "PairwiseCut",
    "Relaxation",
    "RelaxedOTLP",
    "Support",
]
