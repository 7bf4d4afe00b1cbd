"""Solvers: from a problem to a certified plan.  One file a solver; `by_name` has their names."""

from otlp.solvers.auto import Auto
from otlp.solvers.by_name import SOLVERS, line_up, make_solver, with_time_limit
from otlp.solvers.global_resolution.global_resolution import GlobalResolution
from otlp.solvers.greedy import GreedySolver
from otlp.solvers.hub import HubSolver
from otlp.solvers.k_seq import KSeq
from otlp.solvers.linear_program import LinearProgram
from otlp.solvers.martingale import Martingale
from otlp.solvers.max_flow import MaxFlow
from otlp.solvers.naive import Naive
from otlp.solvers.orderings import Orderings
from otlp.solvers.random_ranks import RandomRanks
from otlp.solvers.recursive_rejection import RecursiveRejection
from otlp.solvers.slackness import Slackness
from otlp.solvers.solver import Solver
from otlp.solvers.speculative_sampling import SpeculativeSampling

__all__ = [
    "SOLVERS",
    "Auto",
    "GlobalResolution",
    "GreedySolver",
    "HubSolver",
    "KSeq",
    "LinearProgram",
    "Martingale",
    "MaxFlow",
    "Naive",
    "Orderings",
    "RandomRanks",
    "RecursiveRejection",
    "Slackness",
    "Solver",
    "SpeculativeSampling",
    "line_up",
    "make_solver",
    "with_time_limit",
]
