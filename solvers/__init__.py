"""Solvers: from a problem to a certified plan.  One file a solver."""
