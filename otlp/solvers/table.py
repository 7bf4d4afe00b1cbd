"""The table of solvers: class and name of each solver."""

import typing as _typing

from otlp.solvers.auto import Auto as Auto
from otlp.solvers.global_resolution import GlobalResolution as GlobalResolution
from otlp.solvers.greedy import GreedySolver as GreedySolver
from otlp.solvers.hub import HubSolver as HubSolver
from otlp.solvers.k_seq import KSeq as KSeq
from otlp.solvers.linear_program import LinearProgram as LinearProgram
from otlp.solvers.martingale import Martingale as Martingale
from otlp.solvers.max_flow import MaxFlow as MaxFlow
from otlp.solvers.naive import Naive as Naive
from otlp.solvers.orderings import Orderings as Orderings
from otlp.solvers.random_ranks import RandomRanks as RandomRanks
from otlp.solvers.random_weights import RandomWeights as RandomWeights
from otlp.solvers.recursive_rejection import RecursiveRejection as RecursiveRejection
from otlp.solvers.slackness import Slackness as Slackness
from otlp.solvers.solver import Solver as Solver
from otlp.solvers.speculative_sampling import SpeculativeSampling as SpeculativeSampling

SolverName: _typing.TypeAlias = _typing.Literal[
    "auto",
    "linear-program",
    "max-flow",
    "slackness",
    "global-resolution",
    "martingale",
    "random-ranks",
    "random-weights",
    "orderings",
    "greedy",
    "hub",
    "speculative-sampling",
    "k-seq",
    "recursive-rejection",
    "naive",
]
"""Keys of `SOLVERS`, for editors and type checkers, in the order that commands print."""

_classes = {
    kind.name: kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Solver) and kind is not Solver
}

SOLVERS: dict[str, type[Solver]] = {name: _classes[name] for name in _typing.get_args(SolverName)}
"""All solver classes by name; call a class, optionally with options, to create a solver.

Examples
--------
>>> from otlp.solvers import SOLVERS
>>> sorted(SOLVERS)[:3], SOLVERS["k-seq"].__name__
(['auto', 'global-resolution', 'greedy'], 'KSeq')
"""
