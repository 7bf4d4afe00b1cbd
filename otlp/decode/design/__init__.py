"""Which tree to draft: gather statistics from text that the target wrote, then `design`."""

from otlp.decode.design.best_design import CostCurve, design
from otlp.decode.design.gathering import gather_statistics
from otlp.decode.design.profiles import tournament_profile
from otlp.decode.design.static_trees import best_static_tree
from otlp.decode.design.statistics import FAMILIES, Candidate, Statistics
from otlp.decode.design.text_renewal import Renewal, WrittenText
from otlp.decode.design.top_trees import top_tree_renewal

__all__ = [
    "FAMILIES",
    "Candidate",
    "CostCurve",
    "Renewal",
    "Statistics",
    "WrittenText",
    "best_static_tree",
    "design",
    "gather_statistics",
    "top_tree_renewal",
    "tournament_profile",
]
