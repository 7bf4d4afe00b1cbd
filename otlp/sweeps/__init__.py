"""Sweeps: many problems at once, on every core of a machine or on a cluster."""
