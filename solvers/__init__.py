"""Solvers: from a problem to a certified plan.  One file a solver; `SOLVERS` has their names."""

from collections.abc import Mapping

from otlp.solvers.auto import Auto
from otlp.solvers.global_resolution import GlobalResolution
from otlp.solvers.linear_program import LinearProgram
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.slackness import Slackness
from otlp.solvers.solver import Solver

__all__ = [
    "SOLVERS",
    "Auto",
    "GlobalResolution",
    "LinearProgram",
    "Martingale",
    "MaxFlow",
    "Slackness",
    "Solver",
]

SOLVERS: Mapping[str, type[Solver]] = {
    solver.name: solver
    for solver in (Auto, LinearProgram, MaxFlow, Slackness, GlobalResolution, Martingale)
}
