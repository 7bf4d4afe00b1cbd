"""Solve the optimal transport linear program (OTLP) of multi-draft speculative sampling."""

from otlp.audit import AuditReport, Verdict, audit
from otlp.capability import Capability
from otlp.distribution import as_distribution, softmax
from otlp.drafts import (
    IID,
    DraftScheme,
    Explicit,
    Greedy,
    Hub,
    Independent,
    WithoutReplacement,
)
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, Status
from otlp.solve import optimal_acceptance, solve
from otlp.solvers.solver import Solver

__version__ = "0.1.0"

__all__ = [
    "IID",
    "AuditReport",
    "Capability",
    "DraftScheme",
    "Explicit",
    "Greedy",
    "Guarantee",
    "Hub",
    "Independent",
    "Plan",
    "Problem",
    "Solution",
    "Solver",
    "Status",
    "Verdict",
    "WithoutReplacement",
    "__version__",
    "as_distribution",
    "audit",
    "optimal_acceptance",
    "softmax",
    "solve",
]
