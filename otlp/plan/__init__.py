"""Plans: verification rules, as laws of the verified token given the drafted tuple.

One file a representation.  `Plan` is what they have in common.
"""

from otlp.plan.lifted import LiftedPlan
from otlp.plan.plan import Marginals, Plan, residual_distribution
from otlp.plan.selection import SelectionPlan
from otlp.plan.sets import SetPlan
from otlp.plan.table import TablePlan

__all__ = [
    "LiftedPlan",
    "Marginals",
    "Plan",
    "SelectionPlan",
    "SetPlan",
    "TablePlan",
    "residual_distribution",
]
