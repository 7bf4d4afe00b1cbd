"""Solvers, which compute a certified plan from a problem; one file per solver."""

if __name__ != "otlp.solvers":
    raise ImportError(f"import otlp.solvers, not {__name__}, which would duplicate its classes")

from otlp.solvers.by_name import line_up as line_up
from otlp.solvers.by_name import make_solver as make_solver
from otlp.solvers.by_name import with_time_limit as with_time_limit
from otlp.solvers.table import *  # noqa: F403
from otlp.solvers.table import SOLVERS as SOLVERS

__all__ = [
    *("SOLVERS", "Solver", "line_up", "make_solver", "with_time_limit"),
    *(kind.__name__ for kind in SOLVERS.values()),
]
