"""Exact laws of rounds of decoding, and the bound on what any verification can reach."""
