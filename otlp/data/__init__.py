"""Rows of logits: captures of real models, synthetic rows, and the files that ship with them."""
