"""Global resolution: the solver, its convex functions and their minimiser, the published plan."""

from otlp.solvers.global_resolution.global_resolution import PAPER_LIMITS, GlobalResolution

__all__ = ["PAPER_LIMITS", "GlobalResolution"]
