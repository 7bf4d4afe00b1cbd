"""Plans: verification rules, as distributions of the verified token given the drafted tuple.

One file per representation; `Plan` is the common base class.
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
