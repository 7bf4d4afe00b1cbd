"""Captures of logits of real models, synthetic logits, and the built-in capture."""
