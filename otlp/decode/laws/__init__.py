"""Exact distributions of decoding rounds, and an upper bound on block efficiency."""
