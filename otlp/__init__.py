"""Solve the optimal transport linear program (OTLP) of multi-draft speculative sampling."""

from otlp._solve import optimal_acceptance, solve
from otlp.auditing import AuditReport, RoundReport, Verdict, audit, audit_rounds
from otlp.certificate import Answer
from otlp.data import captures, synthetic
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
from otlp.errors import (
    Capability,
    CaptureError,
    EngineNotFoundError,
    InvalidDistributionError,
    InvalidInputError,
    JournalError,
    OTLPError,
    RowOutOfRangeError,
    SchedulerError,
    SizeLimitError,
    TaskError,
    TokenOutOfRangeError,
    TooFewTokensError,
    UnknownSolverError,
    UnsupportedProblemError,
    ZeroProbabilityError,
)
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, SolveError, Status
from otlp.solvers.solver import Solver
from otlp.sweeps.problems import CaptureProblems, SyntheticProblems
from otlp.sweeps.solve_many import Row, solve_many

__version__ = "0.1.0"
"""The release.

Examples
--------
>>> import otlp
>>> otlp.__version__.split(".")[0]
'0'
"""

__all__ = [
    "IID",
    "Answer",
    "AuditReport",
    "Capability",
    "CaptureError",
    "CaptureProblems",
    "DraftScheme",
    "EngineNotFoundError",
    "Explicit",
    "Greedy",
    "Guarantee",
    "Hub",
    "Independent",
    "InvalidDistributionError",
    "InvalidInputError",
    "JournalError",
    "OTLPError",
    "Plan",
    "Problem",
    "RoundReport",
    "Row",
    "RowOutOfRangeError",
    "SchedulerError",
    "SizeLimitError",
    "Solution",
    "SolveError",
    "Solver",
    "Status",
    "SyntheticProblems",
    "TaskError",
    "TokenOutOfRangeError",
    "TooFewTokensError",
    "UnknownSolverError",
    "UnsupportedProblemError",
    "Verdict",
    "WithoutReplacement",
    "ZeroProbabilityError",
    "__version__",
    "as_distribution",
    "audit",
    "audit_rounds",
    "captures",
    "optimal_acceptance",
    "softmax",
    "solve",
    "solve_many",
    "synthetic",
]
