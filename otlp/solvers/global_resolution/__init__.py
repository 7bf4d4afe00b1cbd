"""Global resolution: solver, convex functions, minimiser and published plan."""

from otlp.solvers.global_resolution.global_resolution import PAPER_LIMITS, GlobalResolution

__all__ = ["PAPER_LIMITS", "GlobalResolution"]
