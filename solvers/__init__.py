"""Solvers: from a problem to a certified plan.  One file a solver; `SOLVERS` has their names."""

from collections.abc import Mapping

from otlp.solvers.auto import Auto
from otlp.solvers.global_resolution import GlobalResolution
from otlp.solvers.greedy import Greedy
from otlp.solvers.hub import Hub
from otlp.solvers.k_seq import KSeq
from otlp.solvers.linear_program import LinearProgram
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.naive import Naive
from otlp.solvers.orderings import Orderings
from otlp.solvers.recursive_rejection import RecursiveRejection
from otlp.solvers.slackness import Slackness
from otlp.solvers.solver import Solver
from otlp.solvers.speculative_sampling import SpeculativeSampling

__all__ = [
    "SOLVERS",
    "Auto",
    "GlobalResolution",
    "Greedy",
    "Hub",
    "KSeq",
    "LinearProgram",
    "Martingale",
    "MaxFlow",
    "Naive",
    "Orderings",
    "RecursiveRejection",
    "Slackness",
    "Solver",
    "SpeculativeSampling",
]

SOLVERS: Mapping[str, type[Solver]] = {
    solver.name: solver
    for solver in (
        Auto,
        LinearProgram,
        MaxFlow,
        Slackness,
        GlobalResolution,
        Martingale,
        Orderings,
        Greedy,
        Hub,
        SpeculativeSampling,
        KSeq,
        RecursiveRejection,
        Naive,
    )
}
