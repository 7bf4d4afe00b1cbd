"""Export of a problem's linear program to other solvers: arrays, CVXPY, MPS files."""

from otlp.export.arrays import LPArrays, lp_arrays, write_arrays
from otlp.export.cvxpy_program import cvxpy_problem
from otlp.export.mps import write_mps

__all__ = ["LPArrays", "cvxpy_problem", "lp_arrays", "write_arrays", "write_mps"]
