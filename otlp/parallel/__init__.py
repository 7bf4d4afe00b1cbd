"""Solving many problems in parallel, on one machine or a cluster, and journals of long runs."""
