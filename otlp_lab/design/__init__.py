"""Choice of the draft tree: gather statistics on text decoded from the target, then `design`."""

from otlp_lab.design.best_design import CostCurve, design
from otlp_lab.design.gathering import gather_statistics
from otlp_lab.design.profiles import tournament_profile
from otlp_lab.design.static_trees import best_static_tree
from otlp_lab.design.statistics import FAMILIES, Candidate, Statistics
from otlp_lab.design.text_renewal import Renewal, WrittenText
from otlp_lab.design.top_trees import top_tree_renewal

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
