"""Formulas and algorithms that know nothing of solvers: one owner for each."""
