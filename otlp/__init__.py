"""Solve the optimal transport linear program (OTLP) of multi-draft speculative sampling.

`import otlp` loads the core: problems, solvers, certificates and captures.  Other subpackages
(`otlp.audit`, `otlp.decode`, `otlp.batched`, ...) load at their first use.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from otlp import errors as errors
from otlp._solve import optimal_acceptance, solve
from otlp.capability import Capability
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
from otlp.parallel.problems import CaptureProblems, SyntheticProblems
from otlp.parallel.solve_many import Row, solve_many
from otlp.plan import Plan
from otlp.problem import Problem
from otlp.solution import Guarantee, Solution, SolveError, Status
from otlp.solvers.solver import Solver

if TYPE_CHECKING:
    from otlp.auditing import audit, audit_rounds

__version__ = "0.1.0"
"""Version of the library.

Examples
--------
>>> import otlp
>>> otlp.__version__.split(".")[0]
'0'
"""

__all__ = [
    "IID",
    "Answer",
    "Capability",
    "CaptureProblems",
    "DraftScheme",
    "Explicit",
    "Greedy",
    "Guarantee",
    "Hub",
    "Independent",
    "Plan",
    "Problem",
    "Row",
    "Solution",
    "SolveError",
    "Solver",
    "Status",
    "SyntheticProblems",
    "WithoutReplacement",
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

_CORE = ("errors", "parallel", "plan", "reductions", "solvers")
_LAZY = {
    **dict.fromkeys(("auditing", "data", "decode", "drafts", "export", "plot", "testing"), "otlp"),
    **dict.fromkeys(("batched", "device"), "torch"),
}
"""Subpackages that load at their first use, and the package that each requires."""


def __getattr__(name: str) -> Any:
    if name in ("audit", "audit_rounds"):
        return getattr(import_module("otlp.auditing"), name)
    if name in _LAZY:
        try:
            return import_module(f"otlp.{name}")
        except errors.EngineNotFoundError as error:
            raise errors.PartNotFoundError(str(error)) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    lazy = (name for name, needs in _LAZY.items() if find_spec(needs))
    return sorted({*__all__, *_CORE, *lazy})
