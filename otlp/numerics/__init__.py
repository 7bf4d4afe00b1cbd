"""Formulas and algorithms that do not depend on solvers, each defined in one file."""
